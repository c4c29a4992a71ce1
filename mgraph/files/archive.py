"""Zip archives from untrusted sources: every size is checked before memory is allocated for it."""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from io import BufferedReader

from ..errors import ModelFileError

STORED, DEFLATED = 0, 8
MAX_MEMBERS = 100_000
MAX_NAME_BYTES = 4096
# How far all members together may expand: a model hardly compresses, a zip bomb does.
MAX_EXPANSION = 16
MIN_EXPANSION_BYTES = 1 << 26

# The records of a zip file, without the fields that do not matter here ("x").
_END = struct.Struct("<4s6xH2LH")
_END64_LOCATOR = struct.Struct("<4s4xQ4x")
_END64 = struct.Struct("<4s28x3Q")
_ENTRY = struct.Struct("<4s4x2H4x3L3H8xL")
_LOCAL = struct.Struct("<4s4xH16x2H")
_ENCRYPTED = 0x1
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive: its size as stored (packed) and unpacked, and where its header is."""

    name: str
    method: int
    crc: int
    packed: int
    size: int
    offset: int


def expansion_limit(size: int) -> int:
    """How many bytes a packed file of ``size`` bytes may become."""
    return max(MIN_EXPANSION_BYTES, MAX_EXPANSION * size)


class ZipArchive:
    """Read access to the members of an open zip file (APPNOTE 6.3: stored or deflated, Zip64 too).

    Everything that is inconsistent raises ``ModelFileError`` with the path in front: a directory that is
    missing or does not end where it should, more than ``MAX_MEMBERS`` members, names that are longer than
    ``MAX_NAME_BYTES``, not UTF-8 or not unique, and members that lie outside the file or overlap, expand to
    more than ``MAX_EXPANSION`` times the file, or fail their checksum.
    """

    def __init__(self, file: BufferedReader, path: str):
        self.path = path
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        self.members = self._directory()
        self._check_extents()

    def error(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {what}")

    def read(self, member: Member) -> bytearray:
        """The unpacked bytes of ``member``, with its checksum verified."""
        signature, method, name_size, extra_size = _LOCAL.unpack(
            self._bytes(member.offset, _LOCAL.size, f"the header of {member.name!r}")
        )
        name = self._bytes(member.offset + _LOCAL.size, name_size, "a name")
        if signature != b"PK\3\4" or method != member.method or name != member.name.encode():
            raise self.error(f"the directory and the header of {member.name!r} disagree")
        data = self._bytes(
            member.offset + _LOCAL.size + name_size + extra_size,
            member.packed,
            f"the data of {member.name!r}",
        )
        if member.method == DEFLATED:
            data = self._inflate(member, data)
        if zlib.crc32(data) != member.crc:
            raise self.error(f"{member.name!r} is damaged: its checksum is wrong")
        return data

    def _inflate(self, member: Member, data: bytearray) -> bytearray:
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            out = bytearray(inflate.decompress(data, member.size + 1))
        except zlib.error as error:
            raise self.error(f"{member.name!r} is damaged: {error}") from None
        if len(out) != member.size or not inflate.eof:
            raise self.error(
                f"{member.name!r} does not unpack to the {member.size} bytes that it should have"
            )
        return out

    def _bytes(self, offset: int, count: int, what: str) -> bytearray:
        if offset + count > self._size:
            raise self.error(f"{what} would reach byte {offset + count}, the file has {self._size}")
        data = bytearray(count)
        self._file.seek(offset)
        if self._file.readinto(data) != count:
            raise self.error(f"{what} ends at byte {self._file.tell()}: the file was cut while it was read")
        return data

    def _directory(self) -> tuple[Member, ...]:
        end, count, size, offset = self._end_record()
        if offset + size != end:
            raise self.error(
                f"the zip directory should end at byte {end}, but it says {size} bytes from byte {offset}"
            )
        if count > MAX_MEMBERS or count * _ENTRY.size > size:
            raise self.error(
                f"a zip directory of {size} bytes with {count} members (at most {MAX_MEMBERS} are read)"
            )
        data = self._bytes(offset, size, "the zip directory")
        members, at = [], 0
        for _ in range(count):
            member, at = self._entry(data, at)
            members.append(member)
        if at != size:
            raise self.error(f"the zip directory has {size - at} bytes too many after {count} members")
        return tuple(members)

    def _end_record(self) -> tuple[int, int, int, int]:
        """Where the directory must end, how many members it has, its size and its offset."""
        start = max(0, self._size - _END.size - _FULL16)
        tail = self._bytes(start, self._size - start, "the end")
        at = tail.rfind(b"PK\5\6")
        if at < 0 or len(tail) - at < _END.size:
            begins = self._size >= 4 and self._bytes(0, 4, "the start") == b"PK\3\4"
            raise self.error(
                f"cut short after {self._size} bytes: it begins like an npz (zip) "
                "file but has no directory at its end"
                if begins
                else f"not an npz (zip) file ({self._size} bytes)"
            )
        _, count, size, offset, comment = _END.unpack_from(tail, at)
        if at + _END.size + comment != len(tail):
            raise self.error("cut short or damaged in its last bytes (zip end record)")
        end = start + at
        if count == _FULL16 or size == _FULL32 or offset == _FULL32 or self._is_zip64(end):
            return self._end_record64(end)
        return end, count, size, offset

    def _is_zip64(self, end: int) -> bool:
        """Whether there are Zip64 records before the end record; PyTorch writes them into every file."""
        where = end - _END64_LOCATOR.size
        return where >= 0 and self._bytes(where, 4, "the Zip64 locator") == b"PK\6\7"

    def _end_record64(self, end: int) -> tuple[int, int, int, int]:
        where = end - _END64_LOCATOR.size
        if where < _END64.size:
            raise self.error("too short for a Zip64 archive")
        signature, at = _END64_LOCATOR.unpack(self._bytes(where, _END64_LOCATOR.size, "the Zip64 locator"))
        if signature != b"PK\6\7" or at > where - _END64.size:
            raise self.error("damaged near its end (Zip64 locator)")
        signature, count, size, offset = _END64.unpack(self._bytes(at, _END64.size, "the Zip64 end record"))
        if signature != b"PK\6\6":
            raise self.error("damaged near its end (Zip64 end record)")
        return at, count, size, offset

    def _entry(self, data: bytearray, at: int) -> tuple[Member, int]:
        """The directory entry at byte ``at`` of the directory, and where the next one begins."""
        if at + _ENTRY.size > len(data):
            raise self.error("the zip directory is cut short")
        fields = _ENTRY.unpack_from(data, at)
        signature, flags, method, crc, packed, size, name_size, extra_size, comment_size, offset = fields
        name_at = at + _ENTRY.size
        extra_at = name_at + name_size
        after = extra_at + extra_size + comment_size
        if signature != b"PK\1\2" or after > len(data):
            raise self.error(f"the zip directory is damaged at its byte {at}")
        name = self._name(bytes(data[name_at:extra_at]))
        if flags & _ENCRYPTED or method not in (STORED, DEFLATED):
            raise self.error(
                f"{name!r} is encrypted or packed by a method (number {method}) that npz files do not use"
            )
        if _FULL32 in (packed, size, offset):
            size, packed, offset = self._sizes64(
                name, data[extra_at : extra_at + extra_size], size, packed, offset
            )
        return Member(name, method, crc, packed, size, offset), after

    def _name(self, raw: bytes) -> str:
        if not 0 < len(raw) <= MAX_NAME_BYTES or b"\0" in raw:
            raise self.error(
                f"a member's name has {len(raw)} bytes or a zero byte in it: "
                f"{raw[:40]!r} (1 to {MAX_NAME_BYTES} are read)"
            )
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.error(f"a member's name is not UTF-8: {raw[:40]!r}") from None

    def _sizes64(self, name: str, extra: bytearray, *fields: int) -> list[int]:
        """``fields``, with those at their maximum replaced, in order, by the Zip64 extra field's."""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            at += 4
            if kind == 1:
                full = [field == _FULL32 for field in fields]
                if sum(full) * 8 <= length <= len(extra) - at:
                    wide = iter(struct.unpack_from(f"<{sum(full)}Q", extra, at))
                    return [next(wide) if f else field for f, field in zip(full, fields, strict=True)]
                break
            at += length
        raise self.error(f"{name!r} claims to be larger than 4 GiB but gives no size")

    def _check_extents(self) -> None:
        names = set()
        for member in self.members:
            if member.name in names:
                raise self.error(f"{member.name!r} appears twice")
            names.add(member.name)
            if member.offset + _LOCAL.size + member.packed > self._size:
                raise self.error(
                    f"{member.name!r} would reach beyond the end of the file: "
                    f"{member.packed} bytes from byte {member.offset} of {self._size}"
                )
            if member.method == STORED and member.packed != member.size:
                raise self.error(
                    f"{member.name!r} is not compressed, yet {member.packed} bytes "
                    f"should become {member.size}"
                )
        if sum(member.packed for member in self.members) > self._size:
            raise self.error("its members overlap")
        total, limit = sum(m.size for m in self.members), expansion_limit(self._size)
        if total > limit:
            raise self.error(
                f"a compressed file of {self._size} bytes that would expand to {total}"
                f" (at most {limit} are read); store it uncompressed, as Marian does"
            )
