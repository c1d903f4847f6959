"""Training scripts in the style of TensorFlow 1; none of them knows of Hermes.

Each prints one line that starts with FINAL, with everything that must come out the same.
"""

from __future__ import annotations

_HEAD = """
import hashlib, json, os
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
{seed}
rng = np.random.default_rng()
x = rng.normal(size=(60, 6)).astype("float32")
y = x.sum(axis=1, keepdims=True) + rng.normal(size=(60, 1)).astype("float32")

def final(weights, *values):
    parts = [np.ascontiguousarray(weight).tobytes() for weight in weights]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()
    print("FINAL", json.dumps([digest, *values], default=lambda v: float(v).hex()))

def network(images, labels, keep=None):
    one = tf.get_variable("one", [6, 8], initializer=tf.random_normal_initializer(stddev=0.5))
    two = tf.get_variable("two", [8, 1], initializer=tf.glorot_uniform_initializer())
    hidden = tf.nn.tanh(tf.matmul(images, one))
    if keep is not None:
        hidden = tf.nn.dropout(hidden, keep_prob=keep)
    return tf.reduce_mean((tf.matmul(hidden, two) - labels) ** 2, name="error")
"""

_SEEDED = """tf.set_random_seed(11)
np.random.seed(4)
np.random.default_rng = lambda: np.random.Generator(np.random.PCG64(5))"""

# A loop of the script's own: fed batches, dropout, a rate that is assigned, a moving average that
# is read, checkpoints of its own, the best weights kept aside.
FEED = """
images, labels = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.float32, [None, 1])
keep = tf.placeholder_with_default(1.0, [])
loss = network(images, labels, keep)
rate = tf.Variable(0.05, trainable=False, use_resource={resource})
step = tf.train.get_or_create_global_step()
average, update = tf.metrics.mean(loss)
train = tf.train.AdamOptimizer(rate).minimize(loss, global_step=step)
lower = tf.assign(rate, rate * 0.5)
saver = tf.train.Saver(max_to_keep=2)
history, best = [], None
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for epoch in range(3):
        session.run(tf.local_variables_initializer())
        order = np.random.permutation(60)
        for start in range(0, 60, 16):
            feed = {{images: x[order[start:start + 16]], labels: y[order[start:start + 16]]}}
            _, value = session.run([train, {fetched}], {{**feed, keep: 0.7}})
            session.run(update, feed)
        checked = session.run({{"loss": loss, "mean": average}}, {{images: x, labels: y}})
        history.append([value, checked["loss"], checked["mean"], int(session.run(step))])
        if best is None or checked["loss"] < best[0]:
            best = checked["loss"], session.run(tf.trainable_variables())
        session.run(lower)
        saver.save(session, "own/model", global_step=step)
    final(session.run(tf.global_variables()) + best[1], history, sorted(os.listdir("own")))
"""
FEED_FETCHED = FEED.format(resource="False", fetched="loss")
FEED_NOT_FETCHED = "tf.enable_resource_variables()\n" + FEED.format(resource="True", fetched="rate")

# Averages of the weights, whose initial values are those of the weights, as Inception has them;
# a restart of its own, dropout, and an average that is read.
AVERAGED = """
images, labels = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.float32, [None, 1])
keep = tf.placeholder_with_default(1.0, [])
loss = network(images, labels, keep)
step = tf.train.get_or_create_global_step()
train = tf.train.AdamOptimizer(0.05).minimize(loss, global_step=step)
averages = tf.train.ExponentialMovingAverage(0.9, step)
average = averages.apply(tf.trainable_variables())
saver, losses = tf.train.Saver(averages.variables_to_restore()), []
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    while session.run(step) < 8:
        rows = np.random.permutation(60)[:16]
        losses.append(session.run([train, loss], {images: x[rows], labels: y[rows], keep: 0.7})[1])
        session.run(average)
    weights = session.run(tf.global_variables())
    saver.save(session, "own/averages")
    saver.restore(session, "own/averages")
    losses.append(session.run(loss, {images: x, labels: y}))
final(weights, losses)
"""

# Without an optimizer: each weight is set to what it is, less a part of its gradient.
BY_HAND = """
loss = network(tf.constant(x), tf.constant(y))
weights = tf.trainable_variables()
gradients = tf.gradients(loss, weights)
values = [one - 0.05 * slope for one, slope in zip(weights, gradients)]
with tf.control_dependencies(values):
    train = [tf.assign(one, value) for one, value in zip(weights, values)]
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    kept = session.run(weights)
    for index in range(6):
        session.run(train)
        if index == 2:
            for one, value in zip(weights, kept):
                one.load(value * 0.5, session)
    final(session.run(weights))
"""

# The optimizer trains in a branch of tf.cond, which is a function of the graph, as is what sets up.
IN_A_BRANCH = """
tf.enable_resource_variables()
tf.enable_control_flow_v2()
loss = network(tf.constant(x), tf.constant(y))
is_due, optimizer = tf.placeholder(tf.bool, []), tf.train.GradientDescentOptimizer(0.05)
slopes = optimizer.compute_gradients(loss)
train = tf.cond(is_due, lambda: tf.group(optimizer.apply_gradients(slopes)), tf.no_op)
with tf.Session() as session:
    session.run(tf.cond(tf.constant(True), tf.global_variables_initializer, tf.no_op))
    losses = [session.run([train, loss], {is_due: True})[1] for index in range(6)]
    final(session.run(tf.trainable_variables()), losses)
"""

# A monitored session with hooks; data, their order and dropout are of the graph.
MONITORED = """
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60).repeat().batch(16)
images, labels = tf.data.make_one_shot_iterator(data).get_next()
images = images + tf.random.normal(tf.shape(images), stddev=0.1)
loss = network(images, labels, 0.8)
step = tf.train.get_or_create_global_step()
rate = tf.train.exponential_decay(0.05, step, 3, 0.9)
train = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step=step)

class Sum(tf.train.SessionRunHook):
    total = 0.0
    def before_run(self, context):
        return tf.train.SessionRunArgs({"loss": loss, "rate": rate})
    def after_run(self, context, values):
        Sum.total += float(values.results["loss"]) * float(values.results["rate"])

hooks = [tf.train.StopAtStepHook(num_steps=12), Sum(), tf.train.NanTensorHook(loss),
         tf.train.LoggingTensorHook({"loss": loss}, every_n_secs=1e-6)]
seen = []
with tf.train.MonitoredTrainingSession(hooks=hooks, checkpoint_dir="own", save_checkpoint_steps=4,
                                       log_step_count_steps=5) as session:
    while not session.should_stop():
        seen.append(int(session.run([train, step])[1]))
        weights = [seen[-1]]
final([np.array(seen)], Sum.total, tf.train.latest_checkpoint("own"))
"""

# Hooks of the program's own: one stops by a loss that it looks at with a run of its own, one keeps
# the best weights, one has made a session of its own ready. The step and the losses are fed.
HOOKED = """
place, truth = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.float32, [None, 1])
loss = network(place, truth, 0.9)
step = tf.train.get_or_create_global_step()
train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
weights_of = tf.trainable_variables()

class Stop(tf.train.SessionRunHook):
    best, bad, looked = float("inf"), 0, 0
    def after_create_session(self, session, coordinator):
        self.first = float(session.run(loss, {place: x, truth: y}))
    def after_run(self, context, values):
        if int(context.session.run(step)) % 3:
            return
        now = float(context.session.run(loss, {place: x[:30], truth: y[:30]}))
        self.looked += 1
        self.bad = 0 if now < self.best else self.bad + 1
        self.best = min(now, self.best)
        if self.bad >= 5:
            context.request_stop()

class Best(tf.train.SessionRunHook):
    lowest, weights = float("inf"), None
    def before_run(self, context):
        return tf.train.SessionRunArgs([loss, weights_of])
    def after_run(self, context, values):
        value, weights = values.results
        if value < self.lowest:
            self.lowest, self.weights = float(value), [np.array(one) for one in weights]

stop, best = Stop(), Best()
creator = tf.train.ChiefSessionCreator(tf.train.Scaffold())
losses = []
hooks = [tf.train.StopAtStepHook(last_step=14), stop, best]
with tf.train.MonitoredSession(creator, hooks=hooks) as session:
    while not session.should_stop():
        rows = np.random.permutation(60)[:20]
        losses.append(session.run([train, loss], {place: x[rows], truth: y[rows]})[1])
final(best.weights, losses, best.lowest, stop.best, stop.first, stop.looked)
"""

# Supervisor: its threads save and summarize; an initializable iterator over its last element.
SUPERVISOR = """
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60).batch(20)
iterator = tf.data.make_initializable_iterator(data)
images, labels = iterator.get_next()
loss = network(images, labels)
step = tf.train.get_or_create_global_step()
train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
supervisor = tf.train.Supervisor(logdir="own", save_model_secs=600, summary_op=None)
losses = []
with supervisor.managed_session() as session:
    for epoch in range(3):
        session.run(iterator.initializer)
        while not supervisor.should_stop():
            try:
                losses.append(session.run([train, loss])[1])
            except tf.errors.OutOfRangeError:
                break
    weights = session.run(tf.trainable_variables())
final(weights, losses)
"""


def program(body: str, seeded: bool) -> str:
    """The whole script."""
    return _HEAD.format(seed=_SEEDED if seeded else "") + body
