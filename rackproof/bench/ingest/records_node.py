# mypy: ignore-errors
"""TFRecord framing and tf.train.Example. Runs on the nodes; needs numpy, nothing of rackproof."""

import functools
import struct

import numpy as np


@functools.cache
def _tables():
    """CRC-32C by byte, and what 256 zero bytes make of a register, by its four bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    basis = np.arange(256, dtype=np.uint32)
    shifts = []
    for place in range(4):
        register = basis << np.uint32(8 * place)
        for _ in range(256):
            register = (register >> np.uint32(8)) ^ table[register & np.uint32(255)]
        shifts.append(register.tolist())
    return table, shifts


def crc32c(data):
    """CRC-32C (RFC 3720). Lanes of 256 bytes at once, then one after the other."""
    table, shifts = _tables()
    if len(data) < 4:
        register = 0xFFFFFFFF
        for byte in data:
            register = (register >> 8) ^ int(table[(register ^ byte) & 255])
        return register ^ 0xFFFFFFFF
    lanes = np.zeros(-(-len(data) // 256) * 256, np.uint8)  # zeros in front change nothing of an empty register
    lanes[-len(data) :] = np.frombuffer(data, np.uint8)
    lanes[len(lanes) - len(data) :][:4] ^= 0xFF
    registers = np.zeros(len(lanes) // 256, np.uint32)
    for column in np.ascontiguousarray(lanes.reshape(-1, 256).T):
        registers = (registers >> np.uint32(8)) ^ table[(registers ^ column) & np.uint32(255)]
    a, b, c, d = shifts
    register = 0
    for lane in registers.tolist():
        register = a[register & 255] ^ b[register >> 8 & 255] ^ c[register >> 16 & 255] ^ d[register >> 24] ^ lane
    return register ^ 0xFFFFFFFF


def record(payload):
    """TFRecord framing: length, masked CRC-32C of the length, payload, masked CRC-32C of the payload."""
    length = struct.pack("<Q", len(payload))
    return length + _masked(length) + payload + _masked(payload)


def _masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def _field(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def example(jpeg, size, label, name):
    """tf.train.Example in Protocol Buffers, with the keys of ImageNet's records."""

    def feature(key, number, values):
        return _field(1, _field(1, key.encode()) + _field(2, _field(number, values)))

    def integer(value):
        return b"\x08" + _varint(value)

    features = (
        feature("image/class/label", 3, integer(label)) + feature("image/encoded", 1, _field(1, jpeg))
        + feature("image/filename", 1, _field(1, name.encode())) + feature("image/format", 1, _field(1, b"JPEG"))
        + feature("image/height", 3, integer(size[1])) + feature("image/width", 3, integer(size[0]))
    )  # fmt: skip
    return _field(1, features)


class Damaged(Exception):
    """A record that does not have the form of its format, or another checksum."""


def read_record(file):
    """The next payload of a TFRecord file, and its bytes in the file; None at the end. The length's checksum is read
    always, as TensorFlow does; the payload's only where a JPEG decoder would not notice: not here."""
    head = file.read(12)
    if not head:
        return None
    if len(head) < 12 or _masked(head[:8]) != head[8:]:
        raise Damaged("a record's length is cut off or damaged")
    (length,) = struct.unpack("<Q", head[:8])
    body = file.read(length + 4)
    if len(body) < length + 4:
        raise Damaged(f"truncated: a record of {length} B has {len(body)} B")
    return body[:length], 16 + length


def encoded(payload):
    """The JPEG of a tf.train.Example."""
    for _, features in fields(payload):
        for _, entry in fields(features):
            key, value = (dict(fields(entry)).get(number, b"") for number in (1, 2))
            if key == b"image/encoded":
                jpeg = dict(fields(dict(fields(value)).get(1, b""))).get(1)
                if jpeg is not None:
                    return jpeg
    raise Damaged("a record has no image/encoded")


def fields(message):
    """Numbers and contents of a message's length-delimited fields."""
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        if key & 7 != 2:
            raise Damaged("a record is no tf.train.Example")
        length, place = _read_varint(message, place)
        if place + length > len(message):
            raise Damaged("a record's field is cut off")
        yield key >> 3, message[place : place + length]
        place += length


def _read_varint(message, place):
    value = shift = 0
    while True:
        if place >= len(message) or shift > 63:
            raise Damaged("a record's field is cut off")
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
