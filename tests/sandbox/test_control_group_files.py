"""Where groups can be made and what their files say, in both versions: from text and files such as kernels write."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from autoclave.core import ExhaustedFault, SandboxFault
from autoclave.sandbox.cgroups import Group, GroupMeter
from autoclave.sandbox.cgroups.files import CpuTime, MemoryV1, MemoryV2, OpenFolder, Processes
from autoclave.sandbox.cgroups.group import Place, Seat, place_of

# Lines of /proc/self/mountinfo: number, parent, device, root, mount point, options - type, source, options.
FIRST = "30 25 0:26 {root} {base}/{name} rw - cgroup cgroup rw,{name}"
SECOND = "42 25 0:27 {root} {base} rw,nosuid - cgroup2 cgroup2 rw"


def first_version(base: Path, *names: str, root: str = "/") -> str:
    return "\n".join(FIRST.format(base=base, name=name, root=root) for name in names)


def written(folder: Path, **files: str) -> Path:
    """A folder with files; a double underscore in a name stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path):
    for name in ("memory/jobs/7", "pids", "cpu,cpuacct"):
        (tmp_path / name).mkdir(parents=True)
    own = "9:pids:/\n4:memory:/jobs/7\n2:cpu,cpuacct:/\n0::/"
    place = place_of(own, first_version(tmp_path, "memory", "pids", "cpu,cpuacct"))
    assert place == Place(
        {
            "memory": Seat(tmp_path / "memory/jobs/7", 1),
            "pids": Seat(tmp_path / "pids", 1),
            "cpu": Seat(tmp_path / "cpu,cpuacct", 1),
        },
        {},
    )
    assert place.is_usable


def test_a_container_sees_its_group_as_the_root_of_the_mount(tmp_path: Path):
    (tmp_path / "memory/inner").mkdir(parents=True)
    mounts = first_version(tmp_path, "memory", root="/docker/5e")
    assert place_of("4:memory:/docker/5e/inner", mounts).seats["memory"].folder == tmp_path / "memory/inner"
    assert place_of("4:memory:/docker/5eff", mounts).seats == {}  # not below what is mounted


def test_version_2_with_controllers_handed_down_is_taken_as_it_is(tmp_path: Path):
    own = written(tmp_path / "me", cgroup__controllers="cpu memory pids\n", cgroup__subtree_control="memory pids\n")
    place = place_of("0::/me", SECOND.format(root="/", base=tmp_path))
    assert place.seats == {name: Seat(own, 2) for name in ("memory", "pids", "cpu")}
    assert place.folders == [own]


def test_alone_in_its_group_of_version_2_the_process_moves_to_a_leaf_and_hands_controllers_down(tmp_path: Path):
    own = written(
        tmp_path / "me",
        cgroup__controllers="memory pids\n",
        cgroup__subtree_control="",
        cgroup__procs=f"{os.getpid()}\n",
    )
    assert place_of("0::/me", SECOND.format(root="/", base=tmp_path)).is_usable
    assert (own / "autoclave-judge/cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+pids"  # each is written by itself; a kernel adds them up


def test_in_the_leaf_it_looks_one_level_higher(tmp_path: Path):
    own = written(tmp_path / "me", cgroup__controllers="memory pids\n", cgroup__subtree_control="memory pids\n")
    (own / "autoclave-judge").mkdir()
    assert place_of("0::/me/autoclave-judge", SECOND.format(root="/", base=tmp_path)).folders == [own]


def test_a_controller_that_was_not_handed_down_is_named(tmp_path: Path):
    written(tmp_path / "me", cgroup__controllers="pids\n", cgroup__subtree_control="pids\n")
    place = place_of("0::/me", SECOND.format(root="/", base=tmp_path))
    assert not place.is_usable
    assert "not given the controller memory" in place.missing["memory"]


def test_without_any_mount_each_controller_is_lacking():
    assert place_of("0::/", "22 1 0:21 / /proc rw - proc proc rw").missing.keys() == {"memory", "cpu", "pids"}


@pytest.fixture
def second_version(tmp_path: Path) -> Path:
    return written(
        tmp_path / "group",
        memory__current="1000\n",
        memory__max="max\n",
        memory__peak="5000\n",
        memory__swap__max="max\n",
        memory__events="low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\noom_group_kill 0\n",
        cpu__stat="usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n",
        pids__max="max\n",
        pids__events="max 4\n",
        pids__peak="12\n",
    )


def test_memory_of_version_2(second_version: Path):
    folder = OpenFolder(second_version)
    memory = MemoryV2(folder)
    memory.limit(1 << 20)
    assert (memory.now(), memory.num_kills(), memory.num_hits()) == (1000, 3, 2)
    assert (second_version / "memory.max").read_text() == "1048576"
    assert (second_version / "memory.swap.max").read_text().startswith("0")
    folder.close()


def test_a_peak_that_cannot_be_begun_anew_counts_only_when_it_is_new(second_version: Path):
    (second_version / "memory.peak").chmod(0o444)
    folder = OpenFolder(second_version)
    memory = MemoryV2(folder)
    peak = memory._peak
    assert peak
    peak.write = lambda number: (_ for _ in ()).throw(SandboxFault("Linux before 6.12 refuses"))
    memory.restart_peak()
    assert memory.peak() is None
    (second_version / "memory.peak").write_text("6000\n")
    assert memory.peak() == 6000
    folder.close()


def test_cpu_time_and_processes_of_version_2(second_version: Path):
    folder = OpenFolder(second_version)
    processes = Processes(folder)
    processes.limit(12)
    assert CpuTime(folder, 2).seconds() == 1.5
    assert processes.num_refusals() == 4
    assert processes.refusal_of_host(4) == processes.refusal_of_host(0) == ""  # its own limit was met
    processes.limit(13)
    assert "a control group above" in processes.refusal_of_host(0)
    folder.close()


def test_without_an_account_of_swap_version_1_does_not_swap(tmp_path: Path):
    path = written(
        tmp_path / "group",
        memory__usage_in_bytes="1000\n",
        memory__max_usage_in_bytes="5000\n",
        memory__limit_in_bytes="9223372036854771712\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        memory__failcnt="2\n",
        memory__swappiness="60",
    )
    folder = OpenFolder(path)
    memory = MemoryV1(folder)
    assert (memory.now(), memory.peak(), memory.num_kills(), memory.num_hits()) == (1000, 5000, 3, 2)
    assert (path / "memory.swappiness").read_text().startswith("0")
    folder.close()


def test_a_file_that_was_closed_by_another_thread_is_a_fault_and_not_another_file(second_version: Path):
    folder = OpenFolder(second_version)
    memory = MemoryV2(folder)
    folder.close()
    with pytest.raises(SandboxFault, match=r"memory\.current cannot be read"):
        memory.now()


def test_a_kill_is_laid_to_the_limit_only_if_this_very_test_met_it(tmp_path: Path):
    folder = written(
        tmp_path,
        memory__usage_in_bytes="1000",
        memory__max_usage_in_bytes="1000",
        memory__limit_in_bytes="0",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
        memory__failcnt="0",
        memory__swappiness="0",
        cpuacct__usage="5000000000",
    )
    memory, cpu = MemoryV1(OpenFolder(folder)), CpuTime(OpenFolder(folder), 1)
    meter = GroupMeter(cast("Group", SimpleNamespace(memory=memory, cpu=cpu, processes=None)), lambda: 0)
    meter.begin_test()
    written(folder, memory__failcnt="3", memory__oom_control="oom_kill 1\n")
    assert meter.is_memory_exceeded()
    assert meter.end_test(0.0).cpu_s == 0.0  # nobody measured it: what the group used before is not its own
    written(folder, memory__failcnt="4", memory__oom_control="oom_kill 2\n")  # by what that test left
    meter.begin_test()
    assert not meter.is_memory_exceeded()
    written(folder, memory__oom_control="oom_kill 3\n")  # the limit was not met again: it was the host
    with pytest.raises(ExhaustedFault, match="the host ran out of memory"):
        meter.is_memory_exceeded()
