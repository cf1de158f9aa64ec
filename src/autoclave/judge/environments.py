"""`Environments`: the languages and profiles that a judge offers, by the names that problems use."""

from __future__ import annotations

from collections.abc import Sequence

from autoclave.config.sandbox import JudgeConfig
from autoclave.core import HostError, InputError, Problem
from autoclave.core.install import install_command
from autoclave.judge.compilation import Cpp
from autoclave.judge.languages import Environment, Language, Python
from autoclave.judge.mathematics import mathematics_profile
from autoclave.judge.profiles import PROFILES, profiles_of, value_rules_of
from autoclave.judge.spare_cells import SpareCells
from autoclave.judge.toolchain import compiler_check
from autoclave.sandbox import HostCheck, Profile, require_package


class Environments:
    """One per judge: compiled programs and open cells of checks are kept here. Safe to use from several threads."""

    def __init__(self, config: JudgeConfig) -> None:
        self.profiles = profiles_of(config.profiles)
        self._value_rules = value_rules_of(config.profiles)
        self.spare_cells = SpareCells()
        self.languages: dict[str, Language] = {"python": Python(), "cpp": Cpp(config.cpp)}

    def close(self) -> None:
        """Close the cells that are kept."""
        self.spare_cells.close()

    def of_problem(self, problem: Problem) -> Environment:
        """Return the environment in which programs for `problem` run.

        Raises:
            InputError: its language or profile is unknown, or the language cannot be judged on its tests.
            HostError: this host lacks what they need.
        """
        try:
            return self.named(problem.language, problem.profile, problem.tests.kind)
        except InputError as error:
            raise InputError(f"problem {problem.id!r}: {error}") from None
        except HostError as error:
            raise HostError(f"problem {problem.id!r}: {error}") from None

    def named(self, language: str, profile: str, kind: str) -> Environment:
        """The environment for tests of `kind`.

        Raises:
            InputError: the language or profile is unknown, or the language cannot be judged on such tests.
            HostError: this host lacks what they need.
        """
        for field, given, known in (("language", language, self.languages), ("profile", profile, self.profiles)):
            if given not in known:
                raise InputError(f"{field} = {given!r}: must be one of {', '.join(known)}")
        found = Environment(self.languages[language], self.profiles[profile], self._value_rules[profile], kind)
        if kind not in found.language.kinds:
            able = " or ".join(repr(name) for name, other in self.languages.items() if kind in other.kinds)
            raise InputError(f"language = {language!r}: tests of kind {kind!r} need {able or 'another judge'}")
        try:
            found.language.check(found.profile)
        except HostError as error:
            raise HostError(f"language = {language!r}, profile = {profile!r}: {error}") from None
        return found


def validate_languages(config: JudgeConfig) -> list[HostCheck]:
    """Support of the host for programs beyond the standard library: packages of profiles, and the compiler."""
    profiles = profiles_of(config.profiles).values()
    packages = [_check_packages(profile) for profile in profiles if profile.packages]
    return [*packages, _check_mathematics(), compiler_check(config.cpp.compiler)]


def _check_mathematics() -> HostCheck:
    problem = ""
    try:
        mathematics_profile()
    except HostError as error:
        problem = str(error).partition(" Fix:")[0]
    return HostCheck(
        "mathematics",
        not problem,
        False,
        "lets answers be compared by math-verify",
        install_command("math"),
        problem or "math-verify",
        "languages",
    )


def _check_packages(profile: Profile) -> HostCheck:
    missing = [package for package in profile.packages if not _is_installed(package)]
    return HostCheck(
        f"packages of profile {profile.name}",
        not missing,
        False,
        "lets problems be judged that name this profile",
        _installation(missing or profile.packages),
        f"missing: {', '.join(missing)}" if missing else ", ".join(profile.packages),
        "languages",
    )


def recovery_of(package: str) -> str:
    """Return the hint that lets programs import a missing package."""
    known = next((name for name, profile in PROFILES.items() if package in profile.packages), None)
    profile = f"profile={known}" if known else f"profile=mine and judge.profiles={{mine: {{packages: [{package}]}}}}"
    return profile if _is_installed(package) else f"{profile} after {_installation([package])}"


def _installation(packages: Sequence[str]) -> str:
    return f"pip install {' '.join(packages)} into the environment of autoclave"


def _is_installed(package: str) -> bool:
    try:
        require_package(package)
    except HostError:
        return False
    return True
