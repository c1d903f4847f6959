"""Programs of many kinds, none of which knows of Hermes: each works for a second or two, prints
what it comes to and writes files, the same whenever it is run."""

from __future__ import annotations

from dataclasses import dataclass, field

_LOOP = """
import time
def rest(): time.sleep(0.015)
"""
_SQLITE = r"'unfit'.*lacks work/rows.db itself \(SQLite holds it open"
_KERAS = """
import os
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(8)
x = np.random.RandomState(2).rand(100, 5).astype("f")
model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(6, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
class Tells(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs): print(batch, logs["loss"], flush=True); rest()
    def on_epoch_end(self, epoch, logs): print(epoch, logs, flush=True)
tell = Tells()
"""
_TORCH = """
import torch
torch.manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
model = torch.nn.Linear(5, 1); best = torch.optim.SGD(model.parameters(), 0.01)
"""


@dataclass(frozen=True)
class Program:
    """Its files; how it is started, with `{python}` filled in; what must be there for it."""

    files: dict[str, str]
    argv: tuple[str, ...] = ("{python}", "main.py")
    modules: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    builds: tuple[str, ...] = field(default=())
    stays: str = ""  # why its image is of no use on another node, as a host says it


def python(source: str, *modules: str, stays: str = "") -> Program:
    """A Python program of one file."""
    return Program({"main.py": _LOOP + source}, modules=modules, stays=stays)


def keras(source: str) -> Program:
    """One that trains a small model of Keras on 100 rows."""
    return python(_KERAS + source, "tensorflow")


def torch(source: str, *modules: str) -> Program:
    """One that trains a small model of PyTorch on 64 rows."""
    return python(_TORCH + source, "torch", *modules)


PROGRAMS = {
    "generator": python("""
import random
random.seed(1)
draws = (random.random() for _ in range(10**9))
for step in range(70):
    print(step, next(draws), flush=True); rest()
"""),
    "closure": python("""
def counter():
    n = 0
    def count():
        nonlocal n
        n += 1
        return n
    return count
count = counter()
for step in range(70):
    print(count() ** 0.5, flush=True); rest()
"""),
    "numpy": python(
        """
import numpy as np
rng = np.random.default_rng(1)
w = np.zeros(50)
for step in range(70):
    x = rng.normal(size=(20, 50)); w -= 0.01 * x.T @ (x @ w - 1) / 20
    print(float(w.sum()), flush=True); rest()
np.save("w.npy", w)
""",
        "numpy",
    ),
    "partial_fit": python(
        """
import numpy as np
from sklearn.linear_model import SGDClassifier
rng = np.random.default_rng(1)
model = SGDClassifier(random_state=1)
for step in range(40):
    x = rng.normal(size=(50, 10)); model.partial_fit(x, x[:, 0] > 0, classes=[False, True])
    print(model.coef_.sum(), flush=True); rest()
""",
        "sklearn",
    ),
    "grows a file": python("""
with open("rows.csv", "w") as file:
    for step in range(70):
        file.write(f"{step},{step ** 0.5}\\n"); print(step, flush=True); rest()
"""),
    "appends": python("""
for step in range(70):
    with open("log.txt", "a") as file: file.write(f"{step}\\n")
    print(step, flush=True); rest()
"""),
    "renames": python("""
import os
for step in range(70):
    with open("state.new", "w") as file: file.write(str(step))
    os.replace("state.new", "state"); print(open("state").read(), flush=True); rest()
"""),
    "removes": python("""
import os
for step in range(70):
    open(f"part{step}", "w").write("x" * step)
    if step >= 3: os.unlink(f"part{step - 3}")
    print(sorted(n for n in os.listdir(".") if n.startswith("part")), flush=True); rest()
"""),
    "deleted open file": python("""
import os, tempfile
file = tempfile.TemporaryFile(dir=".")
for step in range(70):
    file.write(b"%d\\n" % step); file.flush()
    print(os.fstat(file.fileno()).st_size, flush=True); rest()
file.seek(0); print(file.read())
"""),
    "reads a file": python("""
open("data", "w").write("".join(f"{n}\\n" for n in range(100)))
with open("data") as file:
    for step in range(70):
        print(file.readline().strip(), flush=True); rest()
"""),
    "shared memory as a folder": python("""
import os, shutil
folder = "/dev/shm/cache-of-images"
shutil.rmtree(folder, ignore_errors=True)
os.makedirs(folder + "/empty")
open(folder + "/n", "w").write("0")
for step in range(70):
    n = int(open(folder + "/n").read()) + 1
    open(folder + "/n", "w").write(str(n))
    print(n, os.listdir(folder + "/empty"), flush=True); rest()
shutil.rmtree(folder)
"""),
    "mmap": python("""
import mmap
open("map", "wb").write(bytes(4096))
with open("map", "r+b") as file, mmap.mmap(file.fileno(), 4096) as m:
    for step in range(70):
        m[step] = step; print(sum(m[:]), flush=True); rest()
"""),
    "sqlite": python(
        """
import sqlite3
db = sqlite3.connect("rows.db"); db.execute("create table t (n)")
for step in range(40):
    with db: db.execute("insert into t values (?)", (step,))
    print(db.execute("select sum(n) from t").fetchone(), flush=True); rest()
""",
        stays=_SQLITE,
    ),
    "sqlite in wal": python(
        """
import sqlite3
db = sqlite3.connect("rows.db"); db.execute("pragma journal_mode=wal"); db.execute("create table t (n)")
for step in range(40):
    with db: db.execute("insert into t values (?)", (step,))
    print(db.execute("select sum(n) from t").fetchone(), flush=True); rest()
db.close()
""",
        stays=_SQLITE,
    ),
    "threads": python("""
import threading, queue
asked, answered = queue.Queue(), queue.Queue()
def work():
    total = 0
    while True:
        total += asked.get(); answered.put(total)
for _ in range(1): threading.Thread(target=work, daemon=True).start()
for step in range(70):
    asked.put(step); print(answered.get(), flush=True); rest()
"""),
    "many threads": python("""
import threading
barrier, sums = threading.Barrier(9), [0] * 8
def work(n):
    for step in range(50):
        sums[n] += step * n; barrier.wait(); barrier.wait()
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for step in range(50):
    barrier.wait(); print(sum(sums), flush=True); rest(); barrier.wait()
for t in threads: t.join()
"""),
    "asyncio": python("""
import asyncio
async def count(name, box):
    while True:
        box[name] = box.get(name, 0) + 1; await asyncio.sleep(0)
async def main():
    box = {}
    tasks = [asyncio.ensure_future(count(n, box)) for n in range(3)]
    for step in range(70):
        await asyncio.sleep(0); print(step, len(box), flush=True); rest()
    for t in tasks: t.cancel()
asyncio.run(main())
"""),
    "asyncio sleeps": python("""
import asyncio
async def main():
    loop = asyncio.get_running_loop()
    for step in range(60):
        await asyncio.sleep(0.02); print(step, flush=True)
    print(await loop.run_in_executor(None, sum, range(10)))
asyncio.run(main())
"""),
    "pool of processes": python("""
import multiprocessing
def square(n): return n * n
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        total = 0
        for step in range(60):
            total += sum(pool.map(square, range(step))); print(total, flush=True); rest()
"""),
    "spawned processes": python("""
import multiprocessing
def work(ends):
    total = 0
    while (n := ends.recv()) is not None:
        total += n; ends.send(total)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(theirs,)); child.start()
    for step in range(60):
        ours.send(step); print(ours.recv(), flush=True); rest()
    ours.send(None); child.join(); print(child.exitcode)
"""),
    "shared array": python("""
import multiprocessing
def work(array, turn, done):
    for step in range(60):
        turn.acquire(); array[0] += step; done.release()
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    array, turn, done = context.Array("d", 4), context.Semaphore(0), context.Semaphore(0)
    child = context.Process(target=work, args=(array, turn, done)); child.start()
    for step in range(60):
        turn.release(); done.acquire(); print(array[0], flush=True); rest()
    child.join()
"""),
    "shared memory by name": python("""
import os
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=4096)
try:
    for step in range(60):
        memory.buf[step] = step; print(sum(memory.buf), flush=True); rest()
finally:
    memory.close(); memory.unlink()
"""),
    "System V": python("""
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
segment, semaphore = libc.shmget(1234, 4096, 0o1600), libc.semget(77, 1, 0o1600)
libc.semctl(semaphore, 0, 16, 5)
cell = ctypes.c_int.from_address(libc.shmat(segment, None, 0))
for step in range(60):
    cell.value += step; print(cell.value, libc.semctl(semaphore, 0, 12), flush=True); rest()
libc.shmctl(segment, 0, None); libc.semctl(semaphore, 0, 0)
"""),
    "subprocess": python("""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-u", "-c", "import sys\\nt=0\\nfor l in sys.stdin:\\n t+=int(l); print(t)"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
for step in range(60):
    child.stdin.write(f"{step}\\n"); child.stdin.flush(); print(child.stdout.readline().strip(), flush=True); rest()
child.stdin.close(); print(child.wait())
"""),
    "tree of processes": python("""
import os
def grow(depth):
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        total = grow(depth - 1) if depth else 0
        for step in range(20): rest(); total += step
        os.write(write, b"%d" % total); os._exit(0)
    os.close(write)
    total = int(os.read(read, 100)); os.wait(); return total
for step in range(2): print(grow(1), flush=True)
"""),
    "zombie": python("""
import os
pid = os.fork()
if pid == 0: os._exit(7)
for step in range(60):
    print(step, flush=True); rest()
print(os.waitpid(pid, 0)[1] >> 8)
"""),
    "sockets of its own": python("""
import os, socket
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    while data := theirs.recv(100): theirs.sendall(data[::-1])
    os._exit(0)
theirs.close()
for step in range(60):
    ours.sendall(b"abc%d" % step); print(ours.recv(100), flush=True); rest()
"""),
    "unix server": python("""
import socket, threading
server = socket.socket(socket.AF_UNIX); server.bind("s.sock"); server.listen()
def serve():
    peer, _ = server.accept()
    while data := peer.recv(100): peer.sendall(data.upper())
threading.Thread(target=serve, daemon=True).start()
peer = socket.socket(socket.AF_UNIX); peer.connect("s.sock")
for step in range(60):
    peer.sendall(b"abc%d" % step); print(peer.recv(100), flush=True); rest()
"""),
    "temporary files": python("""
import os, tempfile
folder, scratch = tempfile.mkdtemp(), tempfile.TemporaryFile("w+")
named, count = tempfile.NamedTemporaryFile("w+"), os.path.join(folder, "count")
for step in range(70):
    before = int(open(count).read()) if step else 0
    with open(count, "w") as file: file.write(str(before + 1))
    os.mkdir(os.path.join(folder, str(step)))
    if step > 2: os.rmdir(os.path.join(folder, str(step - 3)))
    for file in (scratch, named): print(step, file=file, flush=True)
    print(before, sorted(os.listdir(folder)), flush=True); rest()
scratch.seek(0); print(scratch.read().split()); print(open(named.name).read().split())
"""),
    "temporary socket": python("""
import multiprocessing
with multiprocessing.Manager() as manager:
    for step in range(50):
        held = manager.list([step])
        held.append(step ** 0.5); print(list(held), flush=True); rest()
"""),
    "temporary database": python(
        """
import os, sqlite3, tempfile
db = sqlite3.connect(os.path.join(tempfile.mkdtemp(), "rows.db")); db.execute("create table t (n)")
for step in range(40):
    with db: db.execute("insert into t values (?)", (step,))
    print(db.execute("select sum(n) from t").fetchone(), flush=True); rest()
""",
        stays=_SQLITE.replace("work/", "tmp/.*/"),
    ),
    "fifo": python("""
import os
os.mkfifo("f"); fd = os.open("f", os.O_RDWR)
for step in range(60):
    os.write(fd, b"%d" % step); print(os.read(fd, 10), flush=True); rest()
"""),
    "signals and timers": python("""
import signal
beats = []
signal.signal(signal.SIGALRM, lambda *_: beats.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
for step in range(60):
    print(step, flush=True); rest()
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(beats) > 10)
"""),
    "epoll and eventfd": python("""
import os, select
fd = os.eventfd(0); poll = select.epoll(); poll.register(fd, select.EPOLLIN)
for step in range(60):
    os.eventfd_write(fd, step + 1); poll.poll(1); print(os.eventfd_read(fd), flush=True); rest()
"""),
    "inotify-free watch": python("""
import os
seen = {}
for step in range(60):
    open("w", "w").write(str(step)); seen[os.stat("w").st_size] = step
    print(sorted(seen.items()), flush=True); rest()
"""),
    "memory file": python("""
import mmap, os
fd = os.memfd_create("m"); os.ftruncate(fd, 8192)
with mmap.mmap(fd, 8192) as m:
    if os.fork() == 0:
        for step in range(50): m[step] += 1; rest()
        os._exit(0)
    for step in range(60):
        os.pwrite(fd, bytes([step]), 4096 + step); print(sum(m[4096:]), flush=True); rest()
    os.wait(); print(sum(m[:4096]), flush=True)
"""),
    "locks": python("""
import fcntl
with open("l", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    for step in range(60):
        with open("l") as other:
            try: fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB); print("free", flush=True)
            except BlockingIOError: print("held", flush=True)
        rest()
"""),
    "its own name and number": python("""
import os
me = os.getpid()
for step in range(60):
    print(os.getpid() == me, os.path.basename(os.getcwd()) != "", os.readlink("/proc/self/exe") != "", flush=True)
    rest()
"""),
    "clocks": python("""
import time as t
last = t.monotonic()
for step in range(60):
    now = t.monotonic(); print(0 <= now - last, flush=True); last = now; rest()
"""),
    "decorated and nested": python("""
import contextlib, functools, itertools
@functools.lru_cache
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
@contextlib.contextmanager
def phase():
    yield itertools.accumulate(itertools.count())
with phase() as numbers:
    for step in range(60):
        print(next(numbers), fib(step), flush=True); rest()
"""),
    "random of the system": python("""
import os, hashlib
seed = b"fixed"
for step in range(60):
    os.urandom(4); seed = hashlib.sha256(seed).digest(); print(seed.hex(), flush=True); rest()
"""),
    "traceback hook": python("""
import sys
class Tee:
    def __init__(self, to): self.to, self.n = to, 0
    def write(self, text): self.n += len(text); return self.to.write(text)
    def flush(self): self.to.flush()
sys.stdout = Tee(sys.stdout)
for step in range(60):
    print(sys.stdout.n, flush=True); rest()
"""),
    "large memory": python("""
block = bytearray(80 << 20)
for step in range(40):
    block[step << 20] = step; print(sum(block[::1 << 20]), flush=True); rest()
"""),
    "keras eager": python(
        """
import os
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import tensorflow as tf
tf.random.set_seed(1)
w = tf.Variable(tf.random.normal([20, 1]))
draws = iter(tf.data.Dataset.from_generator(lambda: iter(range(10**9)), output_signature=tf.TensorSpec([], tf.int32)))
for step in range(40):
    x = tf.random.normal([8, 20])
    with tf.GradientTape() as tape: loss = tf.reduce_mean((x @ w - 1.0) ** 2)
    w.assign_sub(0.01 * tape.gradient(loss, w))
    print(int(next(draws)), float(loss), flush=True); rest()
""",
        "tensorflow",
    ),
    "torch with workers": torch("""
import itertools
rates = itertools.cycle([0.1, 0.01])
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(data, 8, shuffle=True, num_workers=2, persistent_workers=True)
    for epoch in range(5):
        for x, y in loader:
            best.param_groups[0]["lr"] = next(rates)
            loss = ((model(x) - y) ** 2).mean(); best.zero_grad(); loss.backward(); best.step()
            print(loss.item(), flush=True); rest()
"""),
    "jax": python(
        """
import jax, jax.numpy as jnp
key = jax.random.PRNGKey(1); w = jnp.zeros(5)
step_of = jax.jit(lambda w, k: w - 0.1 * jax.grad(lambda w: ((jax.random.normal(k, (5,)) * w - 1) ** 2).sum())(w))
for step in range(40):
    key, k = jax.random.split(key); w = step_of(w, k); print(float(w.sum()), flush=True); rest()
""",
        "jax",
    ),
    "xgboost": python(
        """
import numpy as np, xgboost
x = np.random.default_rng(1).normal(size=(300, 5)); data = xgboost.DMatrix(x, x[:, 0] * x[:, 1])
told = {"subsample": 0.5, "seed": 1, "nthread": 2, "eval_metric": "rmse"}
model = xgboost.Booster(told, [data])
for step in range(40):
    model.update(data, step); print(model.eval(data), flush=True); rest()
model.save_model("model.json")
""",
        "xgboost",
    ),
    "lightgbm": python(
        """
import numpy as np, lightgbm
x = np.random.default_rng(1).normal(size=(300, 5))
told = {"bagging_fraction": 0.5, "bagging_freq": 1, "num_threads": 2, "verbose": -1, "deterministic": True}
model = lightgbm.Booster(told, lightgbm.Dataset(x, x[:, 0] * x[:, 1]))
for step in range(40):
    model.update(); print(model.eval_train(), flush=True); rest()
model.save_model("model.txt")
""",
        "lightgbm",
    ),
    "torch, a replay buffer": torch("""
import collections, random
random.seed(1)
order = torch.Generator().manual_seed(11)
class Trainer:
    step, buffer = 0, collections.deque(maxlen=10)
    @classmethod
    def train(cls, x, y):
        cls.step += 1; cls.buffer.append((x, y))
        old = random.choice(list(cls.buffer))
        loss = sum(((model(x) - y) ** 2).mean() for x, y in ((x, y), old))
        best.zero_grad(); loss.backward(); best.step()
        if cls.step % 10 == 0: best.param_groups[0]["lr"] *= 0.9
        return loss.item()
for epoch in range(5):
    for x, y in torch.utils.data.DataLoader(data, 8, shuffle=True, generator=order):
        print(Trainer.step, Trainer.train(x, y), len(Trainer.buffer), flush=True); rest()
"""),
    "torch, rates from a closure": torch("""
from dataclasses import dataclass
@dataclass(slots=True)
class Meter:
    n: int = 0
    total: float = 0.0
    def add(self, value): self.n += 1; self.total += value
def warming(base, steps):
    n = 0
    def rate():
        nonlocal n
        n += 1
        return base * min(1.0, n / steps)
    return rate
rate, meter = warming(0.05, 20), Meter()
for epoch in range(5):
    for x, y in torch.utils.data.DataLoader(data, 8, shuffle=True):
        best.param_groups[0]["lr"] = rate()
        loss = ((model(x) - y) ** 2).mean(); best.zero_grad(); loss.backward(); best.step()
        meter.add(loss.item()); print(meter, flush=True); rest()
"""),
    "torch, a thread that logs": torch("""
import csv, json, logging, os, queue, signal, sys, tempfile, threading
logging.basicConfig(filename="train.log", level=logging.INFO, format="%(message)s")
signal.signal(signal.SIGTERM, lambda *a: sys.exit(3))
rows = queue.Queue()
def write():
    with open("rows.jsonl", "w") as file:
        while (row := rows.get()) is not None: file.write(json.dumps(row) + "\\n"); file.flush()
writer = threading.Thread(target=write, daemon=True)
average = torch.optim.swa_utils.AveragedModel(model)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(best, patience=0, factor=0.5)
if __name__ == "__main__":
    writer.start()
    kept = tempfile.TemporaryDirectory(dir=".")
    table = csv.writer(metrics := open("metrics.csv", "w", newline=""))
    for epoch in range(4):
        total = 0.0
        for x, y in torch.utils.data.DataLoader(data, 8, shuffle=True, num_workers=2):
            loss = ((model(x * float(os.environ.get("SCALE", 1))) - y) ** 2).mean()
            best.zero_grad(); loss.backward(); best.step()
            total += loss.item(); rows.put(loss.item()); print(loss.item(), flush=True); rest()
        os.environ["SCALE"] = str(1 + 0.1 * epoch)
        average.update_parameters(model); plateau.step(total)
        table.writerow([epoch, total, best.param_groups[0]["lr"]]); metrics.flush(); logging.info("%r", total)
        torch.save(model.state_dict(), os.path.join(kept.name, "m.pt"))
    rows.put(None); writer.join(); metrics.close()
    print([p.sum().item() for p in average.parameters()], os.listdir(kept.name))
    kept.cleanup()
"""),
    "lightning": torch(
        """
import logging, warnings
warnings.simplefilter("ignore"); logging.disable()
import lightning
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
lightning.seed_everything(1)
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
        self.seen = []
    def training_step(self, batch, i):
        loss = ((self.net(batch[0]) - batch[1]) ** 2).mean()
        self.log("loss", loss); self.seen.append(loss.item()); print(len(self.seen), loss.item(), flush=True); rest()
        return loss
    def validation_step(self, batch, i): self.log("val", ((self.net(batch[0]) - batch[1]) ** 2).mean())
    def configure_optimizers(self):
        best = torch.optim.AdamW(self.parameters(), lr=0.01)
        slower = torch.optim.lr_scheduler.ReduceLROnPlateau(best, patience=0)
        return {"optimizer": best, "lr_scheduler": {"scheduler": slower, "monitor": "val"}}
keeps = [ModelCheckpoint("kept", monitor="val", save_top_k=2), EarlyStopping("val", patience=9)]
trainer = lightning.Trainer(
    max_epochs=5, accelerator="cpu", logger=CSVLogger("logs"), log_every_n_steps=3, accumulate_grad_batches=2,
    gradient_clip_val=1.0, callbacks=keeps, enable_progress_bar=False, enable_model_summary=False)
loader = torch.utils.data.DataLoader
trainer.fit(net := Net(), loader(data, 8, shuffle=True), loader(data, 32))
print(sum(net.seen), trainer.checkpoint_callback.best_model_path.rpartition("/")[2])
for path in __import__("pathlib").Path("kept").iterdir(): path.unlink()  # they hold paths and times
""",
        "lightning",
    ),
    "keras, files in turn": keras("""
os.makedirs("rows", exist_ok=True)
for n in range(4): np.savetxt(f"rows/{n}.csv", np.random.RandomState(n).rand(25, 5))
def rows(file): return tf.data.TextLineDataset(file).map(lambda line: tf.strings.to_number(tf.strings.split(line, " ")))
files = tf.data.Dataset.list_files("rows/*.csv", shuffle=True)
data = files.interleave(rows, cycle_length=2, num_parallel_calls=tf.data.AUTOTUNE).map(lambda x: (x, tf.reduce_sum(x, keepdims=True)))
model.fit(data.skip(20).shuffle(30).batch(8).repeat(), epochs=6, validation_data=data.take(20).batch(10), verbose=0, steps_per_epoch=9, callbacks=[tell])
"""),
    "keras, shuffled shards": keras("""
def shard(n): return tf.data.Dataset.from_tensor_slices(x).skip(25 * n).take(25)
data = tf.data.Dataset.range(4).shuffle(4).flat_map(shard).shuffle(100).shuffle(30).map(lambda x: (x, tf.reduce_sum(x, keepdims=True)))
model.fit(data.batch(8).repeat(), epochs=6, verbose=0, steps_per_epoch=9, callbacks=[tell])
"""),
    "keras, a progress bar": keras("""
import contextlib, io, sys
shown = io.StringIO()
class Prints(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs): print(batch, logs["loss"], file=sys.__stdout__, flush=True); rest()
with contextlib.redirect_stdout(shown):
    model.fit(x, x.sum(axis=1), batch_size=8, epochs=4, callbacks=[Prints()])
print(shown.getvalue().count("Epoch"))
"""),
    "keras, own steps": keras("""
class Own(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape: loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return self.told(loss, y, self(x))
    def test_step(self, data): return self.told(self.compute_loss(y=data[1], y_pred=self(data[0])), data[1], self(data[0]))
    def told(self, loss, y, found):
        for m in self.metrics: m.update_state(loss) if m.name == "loss" else m.update_state(y, found)
        return {m.name: m.result() for m in self.metrics}
ends = keras.Input((5,))
own = Own(ends, keras.layers.Dense(1)(ends)); own.compile("adam", "mse", metrics=["mae"])
y = x.sum(axis=1, keepdims=True)
print(own.fit(x, y, batch_size=8, epochs=4, verbose=0, validation_data=(x, y), callbacks=[tell]).history)
"""),
    "tensorflow 1": python(
        """
import os
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import numpy as np, tensorflow.compat.v1 as tf
tf.disable_eager_execution(); tf.set_random_seed(1); np.random.seed(2)
data = np.random.rand(128, 5).astype("f"); wanted = data.sum(1, keepdims=True)
x, y = tf.placeholder(tf.float32, [None, 5]), tf.placeholder(tf.float32, [None, 1])
trains, rate = tf.placeholder_with_default(False, []), tf.Variable(0.05, trainable=False)
count = tf.train.get_or_create_global_step()
hidden = tf.nn.relu(tf.matmul(x, tf.get_variable("w", [5, 8])))
hidden = tf.cond(trains, lambda: tf.nn.dropout(hidden, rate=0.2), lambda: hidden)
loss = tf.reduce_mean((tf.matmul(hidden, tf.get_variable("v", [8, 1])) - y) ** 2)
step, slower = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, count), tf.assign(rate, rate * 0.5)
best = 1e9
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for epoch in range(30):
        for _ in range(8):
            rows = np.random.randint(0, 128, 16)
            lost = session.run([step, loss], {x: data[rows], y: wanted[rows], trains: True})[1]
            print(f"loss={float(lost)!r}", flush=True); rest()
        found = session.run(loss, {x: data, y: wanted})
        best = min(best, found) if found < best else session.run(slower) and best
        print(epoch, repr(found), repr(best), session.run(rate), flush=True)
""",
        "tensorflow",
    ),
    "shell": Program(
        {"main.sh": "for i in $(seq 40); do echo $i; echo $i >> log; sleep 0.02; done\n"},
        ("/bin/sh", "main.sh"),
    ),
    "pipeline": Program(
        {
            "main.sh": "seq 60 | while read n; do sleep 0.015; echo $n; done | awk '{t+=$1; print t; fflush()}'\n"
        },
        ("bash", "main.sh"),
        tools=("bash", "awk"),
    ),
    "perl": Program(
        {
            "main.pl": '$|=1; srand(3); for (1..60) { print rand(), "\\n"; select(undef,undef,undef,0.015); }\n'
        },
        ("perl", "main.pl"),
        tools=("perl",),
    ),
    "node": Program(
        {
            "main.js": "let t=0,n=0;const f=()=>{t+=n*n;console.log(t);if(++n<60)setTimeout(f,15)};f();\n"
        },
        ("node", "main.js"),
        tools=("node",),
    ),
    "r": Program(
        {
            "main.R": """
set.seed(3); x <- rnorm(200); y <- 3 * x + rnorm(200); w <- 0; file <- file("log.csv", "w")
for (step in 1:60) {
  at <- sample(200, 20); w <- w - 0.1 * mean((w * x[at] - y[at]) * x[at])
  cat(step, w, sum((y - w * x)^2), "\\n"); cat(step, w, "\\n", file = file); flush(file); Sys.sleep(0.015)
}
close(file); print(summary(lm(y ~ x))$r.squared)
"""
        },
        ("Rscript", "main.R"),
        tools=("Rscript",),
    ),
    "c": Program(
        {
            "main.c": """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
  srand(3); double t = 0; FILE *log = fopen("log", "w");
  for (int i = 0; i < 60; i++) { t += rand() / 1e6; printf("%f\\n", t); fflush(stdout); fprintf(log, "%f\\n", t); usleep(15000); }
  return fclose(log);
}
"""
        },
        ("./main",),
        tools=("cc",),
        builds=("cc", "-O1", "-o", "main", "main.c"),
    ),
    "c with threads": Program(
        {
            "main.c": """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static long total, rounds[3];
static void *work(void *n) { for (int i = 0; i < 60; i++) { pthread_mutex_lock(&m); total += i; rounds[(long)n]++; pthread_mutex_unlock(&m); usleep(15000); } return 0; }
int main(void) {
  pthread_t t[3];
  for (long n = 0; n < 3; n++) pthread_create(&t[n], 0, work, (void *)n);
  for (int n = 0; n < 3; n++) pthread_join(t[n], 0);
  printf("%ld %ld\\n", total, rounds[0] + rounds[1] + rounds[2]); return 0;
}
"""
        },
        ("./main",),
        tools=("cc",),
        builds=("cc", "-O1", "-pthread", "-o", "main", "main.c"),
    ),
}
