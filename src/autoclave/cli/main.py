"""Entry point: the group of commands, and the one place where exceptions become messages and exit codes."""

import errno
import signal
import sys
from importlib import import_module

import click

from autoclave import __version__
from autoclave.core import AutoclaveError, HostError, InputError, StalledFault

FAILED, BAD_INPUT, HOST_INCOMPLETE = 1, 2, 3
DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
EXTRAS: dict[str, str] = {
    **dict.fromkeys(
        ("torch", "transformers", "safetensors", "tensorboard", "jinja2", "tokenizers", "huggingface_hub"), "train"
    ),
    **dict.fromkeys(("fastapi", "starlette", "uvicorn", "httpx", "prometheus_client"), "serve"),
    **dict.fromkeys(("cryptography", "h11"), "runtime"),
    **dict.fromkeys(("pyarrow", "datasets", "datasketch", "zstandard", "ijson"), "curate"),
}
"""Libraries that are not in a plain installation, and their extra."""

_COMMANDS = {
    "act": "Perform actions on files, databases and services, and undo them.",
    "config": "Show and check settings, with the origin of each value.",
    "curate": "Make a training set from public problem sets.",
    "demo": "Train the embedded policy from random weights in minutes.",
    "doctor": "Check what this machine offers for isolation.",
    "episode": "Play single episodes, and grade recorded ones again.",
    "evaluate": "Measure a model on held-out problems or a benchmark.",
    "export": "Write the policy of a checkpoint in Hugging Face form.",
    "judge": "Judge the programs of a file on the tests of problems.",
    "launch": "Write the files that start a run on a cluster.",
    "models": "Get pretrained models without a model hub.",
    "plan": "Estimate prompts, tokens, steps, time and memory of a run.",
    "probe": "Measure how well layers of a model predict values in its programs.",
    "problems": "Inspect files of problems.",
    "recipes": "List the recipes that come with Autoclave, or copy one.",
    "rejudge": "Judge recorded rollouts again and show what changes.",
    "report": "Write the report of a run, or a comparison of runs.",
    "run": "Run one program sealed.",
    "serve": "Judge programs over HTTP.",
    "sft": "Fine-tune a policy on demonstrations.",
    "timeline": "Show how busy sampler, judge and trainer were.",
    "trace": "Run one program sealed and print the final values.",
    "train": "Train a policy by reinforcement learning.",
    "view": "Write a page of rollouts.",
}
"""Commands with their lines in the help, which imports none of them."""

_MODULES = {
    **dict.fromkeys(("demo", "sft"), "train"),
    **dict.fromkeys(("export", "report", "timeline", "view"), "run_folder"),
    **dict.fromkeys(("judge", "run", "trace"), "programs"),
}
"""Modules of commands that have another name."""


class _Commands(click.Group):
    """Group that imports the module of a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        return getattr(import_module(f"autoclave.cli.{_MODULES.get(cmd_name, cmd_name)}"), cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, prog_name="autoclave")
def cli() -> None:
    """Reinforcement learning of code LLMs with rewards that cannot be hacked.

    Example: autoclave demo
    """


def main() -> None:
    """Run a command and exit. SIGTERM ends it as Ctrl-C does: half-written files are removed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.exceptions.Abort:
        click.echo("Interrupted", err=True)
        sys.exit(FAILED)
    except click.ClickException as error:
        click.echo(_message(error), err=True)
        sys.exit(BAD_INPUT)
    except AutoclaveError as error:
        click.echo("\n".join(map(printable, f"Error: {error}".split("\n"))), err=True)
        is_of_host = isinstance(error, HostError | StalledFault)
        sys.exit(BAD_INPUT if isinstance(error, InputError) else HOST_INCOMPLETE if is_of_host else FAILED)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if not extra:
            raise
        from autoclave.core.install import install_command

        click.echo(f"Error: this command needs {error.name}. Fix: {install_command(extra)}", err=True)
        sys.exit(HOST_INCOMPLETE)
    except BrokenPipeError:
        sys.stderr.close()  # the reader is gone; Python would print an error at exit
        sys.exit(FAILED)
    except OSError as error:
        if error.errno not in DISK_TROUBLE:
            raise
        click.echo(f"Error: {error.filename or 'writing a file'}: {error.strerror}. Fix: make room there", err=True)
        sys.exit(HOST_INCOMPLETE)


def printable(line: str) -> str:
    """Return a line that does nothing to a terminal but show."""
    return "".join(char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in line)


def _message(error: click.ClickException) -> str:
    """Return the message of an error, with the command for help; without any argument, the help itself."""
    text = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError) or not isinstance(error, click.UsageError):
        return text
    command = error.ctx.command_path if error.ctx else "autoclave"
    return f"Error: {' '.join(text.split())}\nTry: {command} --help"
