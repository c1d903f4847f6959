# make demo        a search on this machine: 16 trials share its CPU slots, ending in a leaderboard
# make test        the tests            make check  linters, types, import contracts, fresh protos
# make test-frameworks   what needs PyTorch, Lightning, Transformers, JAX or Keras 2, all examples, and
#                  TensorFlow in depth, in an environment of its own (2 GB); nothing may be skipped there
# make test-versions TORCH=2.12.0   the few tests that tell most about a framework, with just this version
#                  of it, in an environment of its own; also TENSORFLOW=, KERAS=, JAX=, LIGHTNING=,
#                  TRANSFORMERS= and ACCELERATE=, several at once where they need each other
# make test-exact  suspends at every boundary of real frameworks, for many minutes: in parts with
#                  SHARD=1/4; what has passed at this commit is not run again. And 1,000 switches
#                  in a row, of which nothing may be left
# make test-ranks  3,000 suspends of PyTorch's DistributedDataParallel: 2 and 3 ranks, in memory, by
#                  checkpoints and, as root where CRIU is, by images, and 2,000 of two simpler programs
#                  by images; in rounds of 50; what has passed at this commit is not run again
# make test-chaos  a cluster of 40 trials of which everything breaks, one after the other
# make test-image  programs of some sixty kinds, suspended as images of their processes: where CRIU is,
#                  HERMES_NODE_CRIU names one, or `tests/images/criu.sh .criu` has fetched one
# make test-slurm  nodes lent by a Slurm of this machine: as root, with slurmctld, slurmd and munge,
#                  which are installed where Debian's apt-get can; skipped without them
# make bench       the benchmarks       make clean  start over
# make proto       write hermesd/pb anew from protos/    make client  the blocking SDK from the asyncio one
# make lock        deploy/requirements.lock and build.lock anew: versions and hashes that services are installed with
# make audit       known faults of those, where a source of advisories can be reached; and build/sbom.json,
#                  the list of them that others' tools read (CycloneDX)
# make install-systemd   as root: Hermes below /opt/hermes with its users and units, or a newer Hermes
#                  in the place of an older; starts and restarts nothing (docs/install.md)

PYTHON ?= python3
BIN    := .venv/bin
SHARD  ?= 1/1
# A test waits for daemons and programs for half of its time and more.
WORKERS ?= $(shell expr `nproc` \* 3)
STAMPS := .venv/.stamps
FRAMEWORKS := .venv-frameworks
VERSIONS := .venv-versions
ASKED = $(foreach name,torch keras jax lightning transformers accelerate,$(call version,$(name),$(name))) \
	$(call version,tensorflow,tensorflow-cpu)
version = $(addprefix $(2)==,$($(shell echo $(1) | tr a-z A-Z)))
# Keras needs something to run on, and what JAX is tested by is Keras.
BESIDE = $(if $(KERAS),$(if $(TENSORFLOW),,'tensorflow-cpu<2.22'),$(if $(TENSORFLOW)$(JAX),'keras<3.16'))
TELLING := $(addprefix tests/trainer_shim/,test_private_names.py \
	test_torch.py::test_parked_at_every_boundary test_torch.py::test_several_suspends_in_one_run \
	test_trainers.py::test_several_suspends_in_one_run \
	test_keras.py::test_every_boundary_parked_and_restored \
	$(if $(KERAS)$(JAX),test_keras_backends.py::test_a_seeded_run_is_the_plain_one) \
	test_tf_function.py::test_metrics_read_between_steps_and_weights_kept_aside)
LOCK   := deploy/requirements.lock
# With what a package of Hermes is made: it runs, too, and as root where services are installed.
BUILD_LOCK := deploy/build.lock
PACKAGING := build/packaging
MARKS  := in_depth torch lightning transformers jax tf_keras examples
space  := $() $()

# Some containers set it: then every daemon and command that a test starts compiles Hermes and what it
# imports again. And a program that finds other modules than its zygote is not started from it.
unexport PYTHONDONTWRITEBYTECODE PYTHONPATH
# Nor from one that has other variables of its framework.
unexport TORCH TENSORFLOW KERAS JAX LIGHTNING TRANSFORMERS ACCELERATE

.PHONY: demo test test-frameworks test-exact test-ranks test-chaos test-image test-slurm test-versions check bench proto client lock audit clean install-systemd
.DELETE_ON_ERROR:

demo: $(STAMPS)/demo
	$(BIN)/hermesctl submit examples/digits/study.yaml --local --follow

test: $(STAMPS)/dev
	$(BIN)/python -m pytest -m 'not slow and not image and not examples and not in_depth' -n $(WORKERS) --dist worksteal

test-frameworks: $(FRAMEWORKS)/.stamp
	$(FRAMEWORKS)/bin/python -m pytest -m '($(subst $(space), or ,$(MARKS))) and not slow' -n auto --no-skips

# Hermes last, as pip heeds only what it installs at once: TensorFlow up to 2.19 asks for a protobuf that
# is too old for Hermes, and runs with that of Hermes.
test-versions:
	@[ -n "$(strip $(ASKED))" ] || { echo 'make test-versions: expected a version, such as TORCH=2.12.0' >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VERSIONS)
	$(VERSIONS)/bin/python -m pip install --quiet --disable-pip-version-check $(ASKED) $(BESIDE)
	$(VERSIONS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(VERSIONS)/bin/python -m pytest -m 'not slow$(if $(TENSORFLOW)$(KERAS),, and not tensorflow)' $(TELLING)

test-exact: $(STAMPS)/dev
	$(BIN)/python -m pytest -p tests.trainer_shim.exactness --shard $(SHARD) tests/trainer_shim \
	|| [ $$? = 5 ]                       # 5: all of it has passed before
	$(BIN)/python -m tests.trainer_shim.exactness_table

test-ranks: $(FRAMEWORKS)/.stamp
	$(FRAMEWORKS)/bin/python -m pytest -p tests.trainer_shim.exactness --shard $(SHARD) --no-skips -m torch \
	tests/trainer_shim/test_ranks.py || [ $$? = 5 ]
	$(FRAMEWORKS)/bin/python -m pytest -p tests.trainer_shim.exactness --shard $(SHARD) -m slow \
	tests/images/test_ranks.py || [ $$? = 5 ]

test-chaos: $(STAMPS)/dev
	$(BIN)/python -m pytest tests/cluster

test-ranks test-image: export HERMES_NODE_CRIU ?= $(firstword $(wildcard $(CURDIR)/.criu/criu) criu)
test-image: $(STAMPS)/dev
	$(BIN)/python -m pytest -m 'not slow' tests/images -n auto

test-slurm: $(STAMPS)/dev
	-command -v slurmctld > /dev/null || apt-get install -y slurm-wlm munge
	$(BIN)/python -m pytest tests/slurm

check: $(STAMPS)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python protos/generate.py --check
	$(BIN)/python -m hermesctl.sdk.generate --check

bench: $(STAMPS)/dev
	$(BIN)/python -m benchmarks

COMPILE := .venv-audit/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --upgrade --quiet \
	--no-emit-index-url --no-annotate --custom-compile-command "make lock"
lock: .venv-audit/.stamp
	$(COMPILE) pyproject.toml -o $(LOCK)
	sed -n 's/^requires = \["\(.*\)"\]/\1/p' pyproject.toml | $(COMPILE) - -o $(BUILD_LOCK)

# It ends well where no source of advisories is reached, and says so: that is no fault of the code.
audit: .venv-audit/.stamp
	mkdir -p build
	.venv-audit/bin/cyclonedx-py requirements $(LOCK) --pyproject pyproject.toml --of JSON -o build/sbom.json
	.venv-audit/bin/pip-audit -r $(LOCK) -r $(BUILD_LOCK) --require-hashes --disable-pip --progress-spinner off > build/audit.txt 2>&1; \
	cat build/audit.txt; \
	if grep -qE '^Found [0-9]+ known vulnerabilit' build/audit.txt; then exit 1; fi; \
	if grep -q 'could not be audited' build/audit.txt || ! grep -q '^No known vulnerab' build/audit.txt; then \
	echo "make audit: not everything was checked: no source of advisories was reached for it"; fi

.venv-audit/.stamp: Makefile
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check uv pip-audit cyclonedx-bom
	touch $@

proto: $(STAMPS)/dev
	$(BIN)/python protos/generate.py

client: $(STAMPS)/dev
	$(BIN)/python -m hermesctl.sdk.generate

install-systemd:
	$(PYTHON) -m venv /opt/hermes
	/opt/hermes/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	rm -rf $(PACKAGING)
	$(PYTHON) -m venv $(PACKAGING)
	$(PACKAGING)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(BUILD_LOCK)
	$(PACKAGING)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-index --no-build-isolation \
	--no-deps --wheel-dir $(PACKAGING)/wheels .
	/opt/hermes/bin/python -m pip install --quiet --disable-pip-version-check --no-index --force-reinstall \
	--no-deps $(PACKAGING)/wheels/*.whl
	ln -sf /opt/hermes/bin/hermesctl /opt/hermes/bin/hermesd /usr/local/bin/
	install -m 644 systemd/hermes.sysusers.conf /usr/lib/sysusers.d/hermes.conf
	systemd-sysusers
	install -d -g hermes -m 750 /etc/hermes
	install -d -o hermes-node -g hermes -m 700 /var/lib/hermes/node   # for "hermesd node join"
	[ -e /etc/hermes/hermesd.toml ] || \
	install -g hermes -m 640 systemd/hermesd.toml.example /etc/hermes/hermesd.toml
	install -m 644 systemd/*.service /etc/systemd/system/
	systemctl daemon-reload

clean:
	rm -rf .venv .venv-audit $(FRAMEWORKS) $(VERSIONS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# One environment; each stamp says that the extras it names are installed for the pyproject.toml
# at hand. uv installs in seconds; where it cannot be had or fails (it does not read pip.conf),
# pip does the same in a minute or two.
$(STAMPS)/demo: EXTRAS := tensorflow-cpu,examples
$(STAMPS)/dev:  EXTRAS := tensorflow-cpu,examples,dev
$(STAMPS)/%: pyproject.toml | $(STAMPS)/venv
	{ [ -x $(BIN)/uv ] && $(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[$(EXTRAS)]'; } \
	|| $(BIN)/python -m pip install --quiet -e '.[$(EXTRAS)]'
	touch $@

# By pip alone: where a CPU build of PyTorch is at hand, pip.conf says where. tf_keras asks for
# the package named tensorflow, which runs on CPUs too.
$(FRAMEWORKS)/.stamp: pyproject.toml
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check \
	    -e '.[tensorflow,torch,lightning,transformers,jax,keras2,examples,all-examples,dev]'
	touch $@

$(STAMPS)/venv:
	$(PYTHON) -m venv .venv
	mkdir -p $(STAMPS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv || echo 'no uv: pip will install'
	touch $@
