"""Programs of several processes."""

from __future__ import annotations

import textwrap

# Each step takes the others': who holds a step too early keeps all of them from theirs for ever.
SOCKETS = textwrap.dedent("""
    import json, os, random, socket, struct, sys, time
    import trainer_shim
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

    if rank == 0:
        listener = socket.create_server(address)
        others = [listener.accept()[0] for _ in range(world - 1)]
    else:
        while True:
            try:
                others = [socket.create_connection(address)]
                break
            except ConnectionRefusedError:
                time.sleep(0.005)
    for other in others:
        other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(other):
        data = b""
        while len(data) < 8:
            part = other.recv(8 - len(data))
            if not part:
                raise ConnectionError("a rank has gone")
            data += part
        return struct.unpack("d", data)[0]

    def all_reduce(value):
        if rank == 0:
            value = sum([read(other) for other in others], value)
        for other in others:
            other.sendall(struct.pack("d", value))
        return value if rank == 0 else read(others[0])
""")

ALL_REDUCE = SOCKETS + textwrap.dedent("""
    def save(folder):
        with open(os.path.join(folder, "state.json"), "w") as file:
            json.dump([weight, mine.getstate()], file)

    trial = trainer_shim.attach()
    mine, weight, first = random.Random(rank), 1.0, 1
    if trial.resume:
        with open(os.path.join(trial.resume.path, "state.json")) as file:
            weight, (version, numbers, gauss) = json.load(file)
        mine.setstate((version, tuple(numbers), gauss))
        first = trial.resume.step + 1
    for step in range(first, int(sys.argv[1]) + 1):
        weight += 1e-3 * all_reduce(mine.random() - weight)
        trial.report(step, loss=weight, save=save)
    print(rank, weight.hex(), flush=True)
""")

# A batch of twelve in each step, divided among the processes: of whole numbers, so that the sum is
# the same in whatever order. Whatever the number of processes, it comes to `global_batch_weight`.
GLOBAL_BATCH = SOCKETS + textwrap.dedent("""
    import time

    def save(folder):
        with open(os.path.join(folder, "weight"), "w") as file:
            file.write(str(weight))

    trial = trainer_shim.attach()
    weight, first = 1, 1
    if trial.resume:
        with open(os.path.join(trial.resume.path, "weight")) as file:
            weight = int(file.read())
        first = trial.resume.step + 1
    for step in range(first, int(sys.argv[1]) + 1):
        mine = range(12 * step, 12 * (step + 1))[rank::world]
        for sample in mine:
            time.sleep(float(sys.argv[2]))
        total = all_reduce(float(sum(weight * sample % 10_007 for sample in mine)))
        weight = int(weight + total) % 10_007
        trial.report(step, loss=float(weight), save=save)
    print(rank, weight, flush=True)
""")


def global_batch_weight(steps: int) -> int:
    """What it comes to after so many steps."""
    weight = 1
    for step in range(1, steps + 1):
        total = sum(weight * sample % 10_007 for sample in range(12 * step, 12 * (step + 1)))
        weight = (weight + total) % 10_007
    return weight


# As `torchrun` would start it; each process writes its weights, and says their sum.
DDP = textwrap.dedent("""
    import sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(int(sys.argv[1])):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
    values = torch.cat([each.detach().flatten() for each in model.parameters()])
    print(rank, values.double().sum().item().hex(), torch.rand(1).item(), flush=True)
    dist.destroy_process_group()
""")

# The same with a network in two parts, each with gradients for several buckets; of the second, what
# is computed is said to be the same in every step.
_WHOLE = "model = DistributedDataParallel(torch.nn.Sequential(*layers))\n"
_PARTS = textwrap.dedent("""
    rest = torch.nn.Sequential(torch.nn.Linear(16, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1))
    parts = [
        DistributedDataParallel(torch.nn.Sequential(*layers[:3]), bucket_cap_mb=0.0003),
        DistributedDataParallel(rest, bucket_cap_mb=0.0003, static_graph=True),
    ]
    model = torch.nn.Sequential(*parts)
""").lstrip()
assert _WHOLE in DDP
DDP_IN_PARTS = DDP.replace(_WHOLE, _PARTS)

# The same with a batch of 24 that is divided among however many there are, and nothing random in
# the network. What depends on their number is in variables of every kind; a function trains, after
# another has looked at the data. Prints all of its weights.
DDP_OF_ANY_WIDTH = textwrap.dedent("""
    import argparse, os, sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    class Job:
        def __init__(self):
            self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            self.best = 1e9

    def evaluate(model, loader):
        with torch.no_grad():
            return sum(float(((model(x) - y) ** 2).sum()) for x, y in loader)

    def epoch(number, job, options, sampler, loader, model, optimizer):
        sampler.set_epoch(number)
        seen = 0
        for x, y in loader:
            assert len(x) == 24 // job.world == options["batch"]
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            seen += len(x) * job.world
        assert seen == 96, seen
        assert (job.rank, job.world) == (dist.get_rank(), dist.get_world_size())

    def main(epochs):
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        job = Job()
        options = {"batch": 24 // job.world, "name": "a"}
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
        shard = data.tensors[0][job.rank :: job.world]
        sampler = DistributedSampler(data, seed=3)
        loader = DataLoader(data, batch_size=options["batch"], sampler=sampler)
        network = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        model = DistributedDataParallel(network)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30, 0.5)
        evaluate(model.module, DataLoader(data, batch_size=96))
        for number in range(epochs):
            epoch(number, job, options, sampler, loader, model, optimizer)
            schedule.step()
            job.best = min(job.best, number)
        assert len(shard) == 96 // job.world
        values = torch.cat([each.detach().flatten() for each in model.parameters()])
        print(*values.tolist(), flush=True)
        dist.destroy_process_group()

    main(int(sys.argv[1]))
""")

# TensorFlow's own way, which is told of the others by TF_CONFIG: each has half of the batch.
MULTI_WORKER = textwrap.dedent("""
    import sys
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id
    x = np.random.RandomState(0).randn(96, 8).astype("float32")
    y = x.sum(1, keepdims=True)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((8, 1)))

    def replica(a, b):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((a @ weights - b) ** 2)
        context = tf.distribute.get_replica_context()
        gradient = context.all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, weights))
        weights.assign_sub(1e-4 * gradient)
        return loss

    @tf.function
    def train_step(a, b):
        return strategy.experimental_local_results(strategy.run(replica, args=(a, b)))[0]

    for step in range(int(sys.argv[1])):
        first = (24 * step + 12 * rank) % 96
        train_step(tf.constant(x[first : first + 12]), tf.constant(y[first : first + 12]))
    print(rank, float(np.abs(weights.numpy()).sum()).hex(), flush=True)
""")

# A model of Keras in a loop of the program's own, which TensorFlow gives its part of a batch of 24,
# whatever the number of processes. Prints all of its weights.
MULTI_WORKER_OF_ANY_WIDTH = textwrap.dedent("""
    import sys
    import keras
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(7)
    x = np.random.RandomState(0).randn(96, 8).astype("float32")
    y = x.sum(1, keepdims=True)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(96, seed=3).repeat().batch(24)
    batches = iter(strategy.experimental_distribute_dataset(data))
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

    def replica(a, b):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(a, training=True) - b) ** 2) / 24
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    @tf.function
    def train_step(a, b):
        losses = strategy.run(replica, args=(a, b))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    for step in range(int(sys.argv[1])):
        loss = train_step(*next(batches))
    weights = np.concatenate([each.numpy().ravel() for each in model.trainable_variables])
    print(*weights.tolist(), flush=True)
""")

# One process with two replicas of the model, each on a device of its own, and half of each batch.
MIRRORED_FIT = textwrap.dedent("""
    import sys
    import keras
    import numpy as np
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    keras.utils.set_random_seed(7)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    x = np.random.RandomState(0).randn(96, 8).astype("float32")
    y = x.sum(1, keepdims=True)
    with strategy.scope():
        layers = keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)
        model = keras.Sequential(layers)
        model.compile("adam", "mse")
    model.fit(x, y, batch_size=24, epochs=int(sys.argv[1]), verbose=0)
    print(0, float(sum(np.abs(each).sum() for each in model.get_weights())).hex(), flush=True)
""")

# It starts two parameter servers and two workers of its own, and is the only one that Hermes knows:
# each server has every second parameter, and each worker its own random numbers.
PARAMETER_SERVERS = textwrap.dedent("""
    import json, os, random, sys
    from multiprocessing import Pipe, Process
    import trainer_shim

    def serve(pipe):
        weights = []
        while True:
            kind, given = pipe.recv()
            if kind == "push":
                weights = given
            elif kind == "add":
                weights = [a + b for a, b in zip(weights, given)]
            pipe.send(weights)

    def work(pipe, seed):
        chance = random.Random(seed)
        while True:
            kind, given = pipe.recv()
            if kind == "gradient":
                pipe.send([1e-3 * (chance.random() - weight) for weight in given])
            elif kind == "get":
                pipe.send(chance.getstate())
            else:
                chance.setstate((given[0], tuple(given[1]), given[2]))
                pipe.send(None)

    def started(target, *arguments):
        mine, theirs = Pipe()
        Process(target=target, args=(theirs, *arguments), daemon=True).start()
        return mine

    def ask(pipe, *question):
        pipe.send(question)
        return pipe.recv()

    def save(folder):
        weights = [ask(each, "pull", None) for each in servers]
        state = weights, [ask(each, "get", None) for each in workers]
        with open(os.path.join(folder, "state.json"), "w") as file:
            json.dump(state, file)

    trial = trainer_shim.attach()
    servers = [started(serve) for _ in range(2)]
    workers = [started(work, seed) for seed in range(2)]
    weights, first = [[1.0, 2.0], [3.0, 4.0]], 1
    if trial.resume:
        with open(os.path.join(trial.resume.path, "state.json")) as file:
            weights, numbers = json.load(file)
        for worker, given in zip(workers, numbers):
            ask(worker, "set", given)
        first = trial.resume.step + 1
    for server, given in zip(servers, weights):
        ask(server, "push", given)
    for step in range(first, int(sys.argv[1]) + 1):
        for server in servers:
            pulled = ask(server, "pull", None)
            for worker in workers:
                weights = ask(server, "add", ask(worker, "gradient", pulled))
        trial.report(step, loss=weights[0], save=save)
    print([[each.hex() for each in ask(server, "pull", None)] for server in servers], flush=True)
""")
