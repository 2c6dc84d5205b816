"""Sums over processes of one machine: the first rank listens, the others send and wait."""

import os
import socket
import struct

NUMBER = struct.Struct("<i")
peers = []


def init_process_group(backend, timeout):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank:
        while True:
            try:
                peers.append(socket.create_connection(address, 60))
                return
            except ConnectionRefusedError:
                continue
    with socket.create_server(address) as server:
        peers.extend(server.accept()[0] for _ in range(world - 1))


def total(number):
    if int(os.environ["RANK"]):
        peers[0].sendall(NUMBER.pack(number))
        return NUMBER.unpack(peers[0].recv(4, socket.MSG_WAITALL))[0]
    number += sum(NUMBER.unpack(peer.recv(4, socket.MSG_WAITALL))[0] for peer in peers)
    for peer in peers:
        peer.sendall(NUMBER.pack(number))
    return number


def all_reduce(tensor, group=None):
    tensor[0] = total(int(tensor[0]))


def new_group(backend, timeout):
    return None


def get_world_size():
    return int(os.environ["WORLD_SIZE"])
