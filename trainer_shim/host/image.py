"""Process images: a program and all that it has started, written to disk and restored by CRIU.

An image is a checkpoint whose files are CRIU's, together with those of the working copy as they
were at that moment. It is verified, kept, moved and deleted like any other. The processes are
stopped while it is written, and only the host ends them, once the image is safe. Whatever CRIU
cannot hold is an error with a reason, and costs the program nothing.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import json
import math
import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable, NoReturn

from trainer_shim import checkpoint_dir, zstd
from trainer_shim.channel.frames import Message
from trainer_shim.host import deleted_files, image_stream, open_files, world
from trainer_shim.host.freeze import descendants
from trainer_shim.host.world import SHARED_MEMORY
from trainer_shim.program import connections
from trainer_shim.rerun.workdir_baseline import scan

FORM = "image"
# In the words of whoever met it: a CRIU says it in its log.
DISK_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
_PROCESSES, _FILES, _TEMPORARY, _SEGMENTS = "processes", "files", "temporary", "segments"
_LOG = "criu.log"
_PAGES = "pages-"
# CRIU at work on a terabyte would still be done; one that takes longer hangs.
LIMIT_SECONDS = 600.0
LATE = "CRIU has not ended in {:g} s"
_COMMON = ("--manage-cgroups=ignore", "--file-locks", "--link-remap", "-v2")
# What is on a GPU is moved by the host: a plugin of CRIU's that does it too is in nobody's way.
_NO_PLUGINS = "--libdir"
_DUMP_ONLY = ("--leave-stopped", "--ghost-limit", "1G")
_C_LIBRARY = re.compile(r"/\S*/(libc\.so\.6|libc-[0-9.]+\.so|ld-musl\S*)$", re.MULTILINE)
# How each of its databases begins.
_SQLITE = b"SQLite format 3\0"
_ERROR = re.compile(r"Error \(.*?\): (.*)")
# All processes of a tree are stopped: nothing comes meanwhile, and what was sent is sent again.
_CONNECTED = ("--tcp-established", "--network-lock", "skip")
_CONNECTION = "it has an open network connection (TCP)"
# These come with every rootless image and mean nothing.
_HARMLESS = ("net: Unexpected error", "rlimit: Can't setup")
# What a manifest says, whatever else it does.
_SAID: Mapping[str, type] = {
    **dict.fromkeys(("clocks", "host", "kept", "laid_out", "parameters"), dict),
    **{"directory": str, "features": list, "step": int},
}
# What it says of files elsewhere, each by a number.
_OUTSIDE = ("outside", "written", "databases", "mapped")
TAKEN = "the number of a process of it is taken here"
PORT_TAKEN = "an address or a port of its network connections cannot be had here"
# What an image cannot have where it is, for now.
NOT_NOW = (TAKEN, PORT_TAKEN)
_WRITE_LOCK = re.compile(r"lock:.* WRITE ")
_IO_URING = "anon_inode:[io_uring]"
_PEER = "it is connected to a program outside of the trial"
# What CRIU says of what it cannot hold, in other words.
_REASONS = (
    ("Connected TCP socket", _CONNECTION),
    ("Can't bind inet socket", PORT_TAKEN),
    ("inet: ", "it has a network socket that cannot be kept"),
    ("Can't open mapped", "it has mapped a file that is deleted"),
    (
        "suspending seccomp failed",
        "a filter of system calls (seccomp) is on it, as in a container or a service of systemd",
    ),
    ("SysVIPC", "it has shared memory of System V"),
    ("tty", "it has a terminal open"),
    ("/dev/nvidia", "it uses a GPU"),
    ("ptrace", "it is being debugged, or debugs another process"),
    ("Can't dump half of stream unix", _PEER),
    ("External socket is used", _PEER),
    ("Can't fork for", TAKEN),
    ("Unsupported", "it uses something that CRIU does not know"),
)


class ImageError(Exception):
    """An image could not be written, or the program not be brought back from one; says why."""


class ImageBroken(ImageError):
    """CRIU was given up while it was at the program, of which what it left is not to be used."""


class NotHere(ImageError):
    """It is of another machine than this; on one of its kind it may be brought back."""


@dataclass(frozen=True)
class Source:
    """What an image is taken of: the root of a process tree, the folder that it works in, the files
    that were laid out there before it began (size and time of change, by name), and the folder of
    its temporary files, if that is its own."""

    pid: int
    folder: str
    laid_out: Mapping[str, list[int]]
    temporary: str = ""


def features() -> list[str]:
    """What a program finds on this machine, and may have come to need: where it is brought back all
    of it must be there, too."""
    flags = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        words = ("flags", "Features")  # as x86 and ARM call them
        flags = next((line.partition(":")[2] for line in file if line.startswith(words)), "")
    libraries = [_c_library(), *(["libzstd"] if zstd.is_here() else [])]
    return [platform.machine(), *libraries, *sorted(flags.split())]


def _c_library() -> str:
    """The file that nearly every program has mapped, and finds again only if it is the same."""
    with open("/proc/self/maps", errors="surrogateescape") as file:  # names that are no text, too
        path = next((found[0] for line in file if (found := _C_LIBRARY.search(line))), "")
    return f"{path} of {os.path.getsize(path)} bytes" if path else "no C library"


def why_not_restorable(manifest: Mapping[str, Any], directory: str, gpu: str) -> str:
    """Why the image of this manifest cannot be brought back on this machine, for a trial in this
    directory and with this GPU; "" if it may be."""
    if manifest.get("away") and manifest["gpu"] != gpu:
        return f"what it had on {manifest['gpu']} goes back to no other GPU"
    lacking = sorted(set(manifest["features"]).difference(features()))
    for path, number in manifest.get("databases", {}).items():
        inside = os.path.relpath(path, manifest["directory"])
        here = path if inside.startswith(os.pardir) else os.path.join(directory, inside)
        if not os.path.exists(here) or os.stat(here).st_ino != number:
            lacking.append(f"{inside} itself (SQLite holds it open, and takes no copy for it)")
    lacking += _lacking_files(manifest.get("outside", {}), may_have_grown=False)
    lacking += _lacking_files(manifest.get("written", {}), may_have_grown=True)
    appended = dict.fromkeys(manifest.get("appended", ()), 0) | manifest.get("mapped", {})
    lacking += _lacking_files(appended, may_have_grown=True)
    return f"this machine lacks {', '.join(lacking[:5])}" if lacking else ""


def _lacking_files(sizes: Mapping[str, int], may_have_grown: bool) -> Iterator[str]:
    for path, size in sizes.items():
        try:
            found = os.path.getsize(path)
        except OSError as error:
            yield f"{path} of {size} bytes (it says: {error.strerror})"
            continue
        if found < size or (found > size and not may_have_grown):
            yield f"{path} of {size} bytes (it has {found})"


def not_held(manifest: Mapping[str, Any]) -> list[str]:
    """The files elsewhere that the program had open to write."""
    return sorted({*manifest.get("written", ()), *manifest.get("appended", ())})


def read(path: str) -> dict[str, Any]:
    """What the manifest of the image at `path` says. Raises ImageError, OSError."""
    try:
        with open(os.path.join(path, checkpoint_dir.MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"its manifest cannot be read: {error}") from None
    if not isinstance(manifest, dict):
        raise ImageError("its manifest says nothing")
    return manifest


def see_that_it_is_sound(manifest: Mapping[str, Any]) -> None:
    """See that a manifest says what one of an image says, which may come from anybody, and names
    nothing outside of the working copy. What is not looked at here is the program's own.

    Raises ImageError.
    """
    for name, kind in _SAID.items():
        if not isinstance(manifest.get(name), kind):
            raise ImageError(f"its manifest does not say {name}")
    clocks, temporary = manifest["clocks"], manifest.get("temporary")
    stamps, folders = list(manifest["laid_out"].values()), manifest.get("shared_folders", [])
    if not (
        _tells_files(manifest["kept"])
        and (temporary is None or _tells_files(temporary))
        and _are(str, manifest["features"], list)
        and all(_are(int, manifest.get(name, {}), dict) for name in _OUTSIDE)
        and all(_are(str, names, list) for names in (folders, manifest.get("appended", [])))
        and _are(int, manifest.get("away", []), list)
        and isinstance(manifest.get("gpu", ""), str)
        and all(_are(int, stamp, list) for stamp in stamps)
        and all(isinstance(clocks.get(name), float) for name in world.CLOCKS)
        and all(math.isfinite(clocks[name]) for name in world.CLOCKS)
        and _is_plain(manifest["directory"].lstrip(os.sep))
    ):
        raise ImageError("its manifest says what no host has written")
    shared = {"there": folders, "links": {}}
    for kept in (manifest["kept"], shared, *([] if temporary is None else [temporary])):
        there, links = kept["there"], kept["links"]
        above = {folder for name in there for folder in _above(name)}
        wrong = [name for name in (*there, *links) if not _is_plain(name)]
        if wrong or not above.isdisjoint(links):
            told = (wrong or sorted(links))[0][:80]
            raise ImageError(f"it has files outside of its folder: {told}")


def _tells_files(kept: Any) -> bool:
    """Whether this is what `_keep_files` says, as far as its kinds go."""
    return (
        isinstance(kept, dict)
        and _are(str, kept.get("there"), list)
        and _are(str, kept.get("links"), dict)
        and all(_are(str, kept.get(name, []), list) for name in ("folders", "fifos"))
    )


def _are(kind: type, values: Any, holder: type) -> bool:
    """Whether it is a list of these, or a dictionary that has these."""
    if not isinstance(values, holder):
        return False
    each: Any = values.values() if isinstance(values, dict) else values
    return all(isinstance(value, kind) for value in each)


def _is_plain(name: str) -> bool:
    """Whether a path is one below a folder, written as no other way than this."""
    return (
        os.path.normpath(name) == name
        and name[:1] not in (os.sep, "")
        and (name.split(os.sep)[0] not in (os.curdir, os.pardir) and "\0" not in name)
    )


def _above(name: str) -> list[str]:
    """The folders that a path lies in."""
    return [name[:place] for place, letter in enumerate(name) if letter == os.sep]


def is_image(path: str) -> bool:
    """Whether the checkpoint at `path` is one, as far as that can be read."""
    try:
        return read(path).get("form") == FORM
    except (ImageError, OSError):
        return False


def take(
    criu: str,
    source: Source,
    checkpoints: str,
    id: str,
    fields: Mapping[str, Any],
    scratch: str,
    dumped: Callable[[list[str]], None],
) -> Message:
    """Write an image of a stopped tree as checkpoint `id`; what a checkpoint's end says.

    `dumped` is called when the program may go on, with what it writes to and the image does not
    hold. This process's umask is changed. Raises ImageError, OSError.
    """
    os.umask(0o077)  # memory may hold secrets
    builder = checkpoint_dir.Builder(checkpoints, id)
    with builder.or_nothing():
        processes = os.path.join(builder.partial, _PROCESSES)
        os.mkdir(processes, 0o700)
        clocks = world.enter_clocks(source.pid)  # CRIU, too
        with _named(source.pid, checkpoints):
            _dump(criu, source.pid, processes, scratch)
            outside = _outside(source.pid, str(fields.get("directory", source.folder)))
            open_files.forget_sizes(os.path.join(processes, open_files.NAME), outside["appended"])
            databases, ports = _databases(source.pid), connections.ports(_tree(source.pid))
            files, temporary = (
                _keep_files(folder, laid_out, os.path.join(builder.partial, name))
                for folder, laid_out, name in (
                    (source.folder, source.laid_out, _FILES),
                    (source.temporary, {}, _TEMPORARY),
                )
            )
            segments = os.path.join(builder.partial, _SEGMENTS)
            folders = _keep_segments(source.pid, segments, is_own=os.path.ismount(scratch))
        dumped(not_held(outside))
        _compress(builder, processes)
        builder.adopt()
        said = {"form": FORM, "features": features(), "clocks": clocks, **outside}
        said |= {"kept": files, "laid_out": source.laid_out, "databases": databases}
        said |= {"shared_folders": folders, "temporary": temporary, "ports": ports}
        return builder.finish({**fields, **said})


def bring_back(
    criu: str, path: str, ends: Mapping[str, int], folder: str, scratch: str, temporary: str = ""
) -> NoReturn:
    """Become the CRIU that restores the tree of the image at `path`, stopped, as a child of this
    process's parent, with these open files in the place of those outside of it that it had, and
    its files in these folders.

    When that has failed, `why_not` tells why. Raises ImageError, OSError.
    """
    os.chdir(scratch)
    image_stream.begin(os.path.join(path, _PROCESSES))  # it is ready when all is verified
    manifest = checkpoint_dir.verify(path)
    _return_files(os.path.join(path, _FILES), manifest["kept"], folder)
    if temporary and (kept := manifest.get("temporary")) is not None:
        os.makedirs(temporary, mode=0o700, exist_ok=True)
        _return_files(os.path.join(path, _TEMPORARY), kept, temporary)
    _return_segments(os.path.join(path, _SEGMENTS), manifest.get("shared_folders", []))
    for written, size in manifest.get("written", {}).items():
        if os.path.getsize(written) > size:  # it goes on writing from there
            os.truncate(written, size)
    connections.wait_for(manifest.get("ports", ()))
    inherited = [f"--inherit-fd=fd[{fd}]:{name}" for name, fd in ends.items()]
    command = _command([criu, "restore", "-d", "-S", "--stream", "-D", ".", *inherited], scratch)
    for fd in ends.values():
        os.set_inheritable(fd, True)
    os.execv(criu, command)


def _compress(builder: checkpoint_dir.Builder, processes: str) -> None:
    """Have the pages of memory compressed, if that can be done here."""
    for name in os.listdir(processes) if zstd.is_here() else ():
        if name.startswith(_PAGES):
            path = os.path.join(processes, name)
            builder.add(os.path.join(_PROCESSES, name + zstd.SUFFIX), zstd.compressed(path))
            os.unlink(path)


def why_not(scratch: str, status: int) -> str:
    """Why a CRIU that has ended with this exit status has failed."""
    return _reason(os.path.join(scratch, _LOG)) or f"CRIU ended with {status}"


def _command(words: list[str], scratch: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(scratch, _LOG))
    rights = () if world.is_root() else ("--unprivileged",)
    connected = _CONNECTED if connections.are_held() else ()
    return [*words, *rights, *connected, *_COMMON, _NO_PLUGINS, scratch, "-W", scratch, "-o", _LOG]


@contextlib.contextmanager
def _named(root: int, checkpoints: str) -> Iterator[None]:
    try:
        with deleted_files.named(_tree(root), checkpoints):
            yield
    except deleted_files.HalfDone as error:
        raise ImageBroken(str(error)) from error


def _dump(criu: str, pid: int, processes: str, scratch: str) -> None:
    words = [criu, "dump", "-t", str(pid), "-D", processes, *_DUMP_ONLY]
    command = _command(words, scratch)
    if any(_IO_URING in {*_mapped(each), *dict(_opened(each))} for each in _tree(pid)):
        raise ImageError("it uses io_uring")  # CRIU fails without a word of it
    if _CONNECTED[0] in command and not connections.are_within(_tree(pid)):
        raise ImageError(_CONNECTION)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ImageBroken(LATE.format(LIMIT_SECONDS)) from None
    if done.returncode != 0:
        kind = ImageBroken if done.returncode < 0 else ImageError
        raise kind(why_not(scratch, done.returncode))


def _reason(log: str) -> str:
    """The first error that CRIU's log tells, in our words where we have some."""
    try:
        with open(log, errors="replace") as file:
            said = [found.group(1).strip() for line in file if (found := _ERROR.search(line))]
    except OSError:
        return ""
    errors = [each for each in said if not each.startswith(_HARMLESS)]
    for each in errors:
        for sign, reason in _REASONS:
            if sign in each:
                return reason
    return f"CRIU: {errors[0]}" if errors else ""


# The files of the working copy, and temporary ones.


def _keep_files(folder: str, laid_out: Mapping[str, list[int]], kept: str) -> dict[str, Any] | None:
    """Copy what the program has made or changed there; what all is there, and where links lead.
    None without a folder."""
    if not folder:
        return None
    there = scan(folder)
    links, fifos = {}, []
    for name, stamp in there.items():
        path = os.path.join(folder, name)
        if os.path.islink(path):
            links[name] = os.readlink(path)
        elif stamp and stat.S_ISFIFO(os.stat(path).st_mode):
            fifos.append(name)
        elif stamp and stamp[:2] != laid_out.get(name) and os.path.isfile(path):
            target = os.path.join(kept, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(path, target)
    folders = [name for name, stamp in there.items() if not stamp]
    return {"there": sorted(there), "links": links, "folders": folders, "fifos": fifos}


def _return_files(kept: str, files: Mapping[str, Any], folder: str) -> None:
    """Have a folder as it was: what has come since goes, what has changed is put back."""
    there, links = set(files["there"]), files["links"]
    folders, fifos = set(files.get("folders", there)), set(files.get("fifos", ()))
    for name in sorted(scan(folder), reverse=True):  # what lies in a folder before the folder
        path = os.path.join(folder, name)
        if name not in there or (os.path.islink(path) and os.readlink(path) != links.get(name)):
            os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    held = scan(kept)
    for name in sorted(there):
        path, target = os.path.join(kept, name), os.path.join(folder, name)
        if held.get(name):
            if not _is_same(path, target):
                _put_back(path, target)
            shutil.copystat(path, target)
        elif name in links and not os.path.islink(target):
            os.symlink(links[name], target)
        elif name in fifos and not os.path.lexists(target):
            os.mkfifo(target)
        elif name in folders and not os.path.lexists(target):
            os.makedirs(target)


def _put_back(path: str, target: str) -> None:
    """Copy a file over what there is: SQLite goes on only with the same file, not with another of
    the same name."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(target)
        is_own = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if not (is_own and os.access(target, os.W_OK)):
            os.unlink(target)
    shutil.copyfile(path, target)


def _is_same(path: str, other: str) -> bool:
    """Whether they hold the same; the time of one that is written through memory tells little."""
    try:
        return stat.S_ISREG(os.lstat(other).st_mode) and filecmp.cmp(path, other, shallow=False)
    except FileNotFoundError:
        return False


# Shared memory that has a name: files that are gone after a reboot, and on other machines.


def _keep_segments(root: int, kept: str, is_own: bool) -> list[str]:
    """Copy the files there; what folders there are. Of a world that has its own all are kept but
    what others use, of trials that came from the same zygote; of the machine's, those that the
    processes of the tree have mapped."""
    tree, folders = _tree(root), []
    if is_own:
        there = scan(SHARED_MEMORY)
        folders = [name for name, stamp in there.items() if not stamp]
        others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - tree
        used = {path for pid in others for path in (*_mapped(pid), *dict(_opened(pid)))}
        files = {os.path.join(SHARED_MEMORY, name) for name, stamp in there.items() if stamp} - used
    else:
        mapped = {path for pid in tree for path in _mapped(pid)}
        files = {path for path in mapped if path.startswith(SHARED_MEMORY + os.sep)}
    for path in files:
        target = os.path.join(kept, os.path.relpath(path, SHARED_MEMORY))
        with contextlib.suppress(FileNotFoundError):  # it was another trial's, and is gone
            if stat.S_ISREG(os.lstat(path).st_mode):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(path, target)
    return folders


def forget_names(path: str) -> None:
    """The program of the image at `path` is there again: it needs the files no more that were
    given a name only for the image."""
    kept = os.path.join(path, _SEGMENTS)
    deleted_files.forget(os.listdir(kept) if os.path.isdir(kept) else ())


def _return_segments(kept: str, folders: Iterable[str]) -> None:
    for name in folders:
        os.makedirs(os.path.join(SHARED_MEMORY, name), exist_ok=True)
    for name, stamp in scan(kept).items():
        if stamp:
            shutil.copy2(os.path.join(kept, name), os.path.join(SHARED_MEMORY, name))


def _outside(root: int, directory: str) -> dict[str, Any]:
    """The files that the processes of a tree have mapped or open, by how it finds them again: those
    of `outside` only with the same size, such as its interpreter, libraries and data, and a
    database amid a change; those of `written`, which it only writes to, cut to it; those of
    `appended`, where others may write, too, as they are, but for those of `mapped`, which must be
    as long as what it has mapped of them, or it would be killed where it reads beyond their end.
    Not those in the trial's own directory, nor in shared memory."""
    same: set[str] = set()
    mapped: dict[str, int] = {}
    written: set[str] = set()
    appended: set[str] = set()
    changing: set[str] = set()
    for pid in _tree(root):
        for path, end in _mapped(pid).items():
            mapped[path] = max(end, mapped.get(path, 0))
        for path, use in _opened(pid):
            if use.mode == os.O_RDWR and use.is_locked:
                changing.add(path)
            elif use.mode == os.O_RDWR or (use.mode == os.O_WRONLY and use.adds):
                appended.add(path)
            else:
                (written if use.mode == os.O_WRONLY else same).add(path)
    appended -= changing
    same = (same | mapped.keys() | changing) - appended
    written -= same | appended
    own = (directory + os.sep, SHARED_MEMORY + os.sep, "/proc/", "/sys/", "/dev/")

    def sizes(paths: Iterable[str]) -> dict[str, int]:
        return {
            path: os.path.getsize(path)
            for path in sorted(paths)
            if path.startswith("/") and not path.startswith(own) and os.path.isfile(path)
        }

    added = sizes(appended)
    return {
        "outside": sizes(same),
        "written": sizes(written),
        "appended": list(added),
        "mapped": {path: min(size, mapped[path]) for path, size in added.items() if path in mapped},
    }


def _databases(root: int) -> dict[str, int]:
    """The numbers, in their file systems, of the SQLite databases that a tree has open."""
    found = {}
    for pid in _tree(root):
        for number in os.listdir(f"/proc/{pid}/fd"):
            fd = f"/proc/{pid}/fd/{number}"
            with contextlib.suppress(OSError):  # closed, or not to be read
                status = os.stat(fd)
                if not stat.S_ISREG(status.st_mode) or not status.st_nlink:
                    continue
                with open(fd, "rb") as file:
                    if file.read(len(_SQLITE)) == _SQLITE:
                        found[os.readlink(fd)] = status.st_ino
    return found


def _tree(root: int) -> set[int]:
    return {root, *descendants(root, ())}


def _mapped(pid: int) -> dict[str, int]:
    """What a process has mapped: paths of files, and other things' names, and up to where."""
    ends: dict[str, int] = {}
    maps = f"/proc/{pid}/maps"
    # As `readlink` gives names that are no text.
    with contextlib.suppress(OSError), open(maps, errors="surrogateescape", newline="\n") as file:
        for line in file:
            place, _, offset, *_, name = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(number, 16) for number in place.split("-"))
            ends[name] = max(int(offset, 16) + last - first, ends.get(name, 0))
    return ends


@dataclass(frozen=True)
class _Use:
    """How a process has a file open."""

    #: O_RDONLY or another.
    mode: int
    #: Only to its end.
    adds: bool
    #: For others, while this one writes.
    is_locked: bool


def _opened(pid: int) -> Iterator[tuple[str, _Use]]:
    """What a process has open, as `_mapped` gives it, and how."""
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed, or not to be read
                path = os.readlink(f"/proc/{pid}/fd/{number}")
                with open(f"/proc/{pid}/fdinfo/{number}") as file:
                    said = file.read()
                flags = int(said.partition("flags:")[2].split()[0], 8)
                is_locked = any(map(_WRITE_LOCK.match, said.splitlines()))
                yield path, _Use(flags & os.O_ACCMODE, bool(flags & os.O_APPEND), is_locked)
