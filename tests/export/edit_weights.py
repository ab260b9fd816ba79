"""edit_weights.py IN OUT [FACTOR]: a .safetensors file without metadata, or with a FACTOR: metadata kept but for its hash, the
weights of the last layer multiplied."""
import json
import struct
import sys

import numpy as np

data = open(sys.argv[1], "rb").read()
length, = struct.unpack("<Q", data[:8])
head, body = json.loads(data[8:8 + length]), bytearray(data[8 + length:])
if len(sys.argv) == 3:
    del head["__metadata__"]
else:
    del head["__metadata__"]["sha256"]
    begin, end = head["head.fc2.weight"]["data_offsets"]
    body[begin:end] = (np.frombuffer(bytes(body[begin:end]), "<f4") * np.float32(sys.argv[3])).tobytes()
text = json.dumps(head).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + body)
