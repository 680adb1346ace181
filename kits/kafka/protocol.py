"""Requests of Kafka's protocol as an operator or another program sends them: over a listener without encryption, in
versions that brokers from 4.0 on take."""
import socket
import struct
import time

# Error codes of brokers that are not the leader of a partition, or do not know it yet.
ELSEWHERE = (3, 5, 6)
CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def text(value):
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def varint(value):
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def ask(port, key, version, body):
    """Returns the body of the answer."""
    request = struct.pack(">hhih", key, version, 1, -1) + body
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        return answer.read(struct.unpack(">i", answer.read(4))[0])[4:]


def check(what, topic, code):
    if code != 0:
        raise ValueError("%s of %s: error %d of the protocol" % (what, topic, code))


def set_partition_count(port, topic, count):
    """CreatePartitions: a topic may have more partitions than before, never fewer."""
    body = struct.pack(">i", 1) + text(topic) + struct.pack(">iii?", count, -1, 30000, False)
    # After the throttle time, the length of the list and the name.
    check("CreatePartitions", topic, *struct.unpack_from(">h", ask(port, 37, 1, body), 8 + len(text(topic))))


def delete_topic(port, topic):
    body = struct.pack(">i", 1) + text(topic) + struct.pack(">i", 30000)
    check("DeleteTopics", topic, *struct.unpack_from(">h", ask(port, 20, 1, body), 8 + len(text(topic))))


def set_config(port, topic, name, value):
    """IncrementalAlterConfigs: sets one setting of a topic."""
    body = struct.pack(">ib", 1, 2) + text(topic) + struct.pack(">i", 1) + text(name) + b"\0" + text(value) + b"\0"
    check("IncrementalAlterConfigs", topic, *struct.unpack_from(">h", ask(port, 44, 0, body), 8))


def on_leader(ports, what, topic, send):
    """Sends a request to each broker until the leader has taken it; returns its answer."""
    end = time.time() + 30
    while True:
        for port in ports:
            code, answer = send(port)
            if code not in ELSEWHERE or time.time() > end:
                check(what, topic, code)
                return answer
        time.sleep(0.1)


def delete_records(ports, topic, partition, before):
    """DeleteRecords: removes the records before an offset, as retention does."""
    body = struct.pack(">i", 1) + text(topic) + struct.pack(">iiqi", 1, partition, before, 30000)

    def send(port):
        start, code = struct.unpack_from(">qh", ask(port, 21, 0, body), 8 + len(text(topic)) + 8)
        return code, start
    return on_leader(ports, "DeleteRecords", topic, send)


def append(ports, topic, partition, value):
    """Produce: appends one record as a program that is not ours; returns its offset."""
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    now_ms = int(time.time() * 1000)
    rest = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + varint(len(record)) + record
    batch = struct.pack(">ibI", -1, 2, crc32c(rest)) + rest
    batch = struct.pack(">qi", 0, len(batch)) + batch
    body = struct.pack(">hhii", -1, -1, 30000, 1) + text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch

    def send(port):
        code, offset = struct.unpack_from(">hq", ask(port, 0, 3, body), 4 + len(text(topic)) + 8)
        return code, offset
    return on_leader(ports, "Produce", topic, send)
