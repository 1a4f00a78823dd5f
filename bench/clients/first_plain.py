"""Prints how many microseconds it takes to connect to all nodes and to get an answer to PING."""

import socket
import sys
import time
from urllib.parse import urlsplit

start = time.perf_counter()
nodes = [socket.create_connection((url.hostname, url.port)) for url in map(urlsplit, sys.argv[1:])]
for node in nodes:
    node.sendall(b"*1\r\n$4\r\nPING\r\n")
for node in nodes:
    node.recv(64)
print((time.perf_counter() - start) * 1e6)
