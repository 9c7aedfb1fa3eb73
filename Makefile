# `make help` lists the targets. Longer commands are in scripts/.

# The folder of compiled files; the environment may name another folder.
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))

# Two cargo commands at the same time would wait for each other.
.NOTPARALLEL:
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: rocksdb
rocksdb: ## fetch RocksDB's own release for cargo to link; ROCKSDB=source compiles RocksDB (10 minutes more)
	@scripts/setup.sh build
	@scripts/rocksdb.sh

.PHONY: build
build: rocksdb ## install the build dependencies, compile a release build into ./bin
	@scripts/build.sh

.PHONY: wheels
wheels: build ## the Python client, and the command as a Python package, in target/wheels
	@scripts/python.sh wheels

.PHONY: demo
demo: build ## the whole path with live agents, without any service; ARGS="--serve" passes flags
	@./bin/runlog demo $(ARGS) </dev/null

.PHONY: test-fast
test-fast: rocksdb ## the tests that need no Docker
	@scripts/test.sh fast

.PHONY: test-page
test-page: build ## the web page in Debian's Chromium; screenshots in target/page
	@scripts/setup.sh page
	@RUNLOG_BIN="$(or $(RUNLOG_BIN),bin/runlog)" scripts/page.sh test

.PHONY: page-memory
page-memory: build ## the memory of a page that is left open under load, MINUTES=60
	@scripts/setup.sh page
	@RUNLOG_BIN="$(or $(RUNLOG_BIN),bin/runlog)" RUNLOG_PAGE_MINUTES=$(or $(MINUTES),60) scripts/page.sh memory

.PHONY: page-shots
page-shots: build ## the screenshots in the documents again, of the running demo
	@scripts/setup.sh page
	@RUNLOG_BIN="$(or $(RUNLOG_BIN),bin/runlog)" scripts/page.sh shots

.PHONY: kafka-image
kafka-image: ## make Docker run and have the image of a real Kafka (RUNLOG_KAFKA_IMAGE names another)
	@scripts/setup.sh test
	@scripts/docker.sh
	@deploy/kafka/build.sh

.PHONY: image
image: build ## make Docker run and have the service image runlog/runlog:dev
	@scripts/setup.sh test
	@scripts/docker.sh
	@deploy/runlog/build.sh

.PHONY: packages
packages: rocksdb ## package the crates that other programs depend on, and compile each as it is packaged
	@scripts/packages.py verify

.PHONY: compile
compile: rocksdb ## compile the tests and the command that they run
	@scripts/test.sh compile

.PHONY: test
test: ## all tests, on a real Kafka too; longer ones are in make nightly
	@scripts/setup.sh test
	@scripts/rocksdb.sh
	@scripts/test.sh all

.PHONY: test-ports-heavy
test-ports-heavy: build ## the ports on SDKs too large for our workspace; on a real Kafka too if Docker is available
	@scripts/test-ports-heavy.sh

.PHONY: checks
checks: rocksdb ## format, lints, documentation, licences and sources of the dependencies
	@scripts/checks.sh

.PHONY: fuzz
fuzz: ## hostile bytes at the readers of records, requests and credentials for FUZZ_SECONDS=140
	@scripts/setup.sh build
	@scripts/rocksdb.sh
	@scripts/fuzz.sh $(or $(FUZZ_SECONDS),140)

.PHONY: verify
verify: ## the gate, and all that CI runs: checks, then all tests; writes HEAD to target/verified if the tree is clean
	@scripts/setup.sh test
	@scripts/rocksdb.sh
	@scripts/verify.sh

.PHONY: nightly nightly-model nightly-faults nightly-security nightly-artefacts
nightly: nightly-model nightly-faults nightly-security nightly-artefacts ## long runs in four parts; report: target/nightly
nightly-model: ## the model and the simulation with many seeds, instruction counts
	@scripts/nightly.sh model
nightly-faults: ## brokers, agents and servers killed, paused, cut off; full disks; Python agents killed
	@scripts/nightly.sh faults
nightly-security: ## fuzzing, hostile clients, proxies, rotation of secrets, memory of an open page
	@scripts/nightly.sh security
nightly-artefacts: ## the release build tested, wheels, packages, compose, MirrorMaker, heavy ports, all features, a short benchmark
	@scripts/nightly.sh artefacts

.PHONY: from-nothing
from-nothing: ## the gate in a fresh clone of HEAD with an empty HOME, as on a new machine
	@scripts/from-nothing.sh

.PHONY: model
model: compile ## the product beside the independent model: SEEDS=1000000 on the pure projection, DISK_SEEDS=20000 with kills, FROM=0 on, LOOKS=1 at each
	@RUNLOG_LOOKS=$(or $(LOOKS),1) RUNLOG_SEEDS_FROM=$(or $(FROM),0) RUNLOG_SEEDS=$(or $(SEEDS),1000000) RUNLOG_DISK_SEEDS=$(or $(DISK_SEEDS),20000) cargo test --test model_agrees -- --nocapture

.PHONY: sim
sim: compile ## handles, servers and operators under faults, on a virtual clock: SEEDS=10000, FROM=0 on; a failing seed is shrunk and reported
	@RUNLOG_SIM_FROM=$(or $(FROM),0) RUNLOG_SIM_SEEDS=$(or $(SEEDS),10000) cargo test --test simulation -- --nocapture no_interleaving

.PHONY: cuts
cuts: kafka-image compile ## cut all connections to the broker in the middle of bookings, CUTS=3x30: three times for 30 seconds
	@RUNLOG_CUTS=$(or $(CUTS),3x30) RUNLOG_BIN="$(CARGO_TARGET_DIR)/tested/runlog" cargo test --test kafka -- connections_cut:: --nocapture

.PHONY: cluster
cluster: kafka-image compile ## a Kafka cluster of three brokers under load: FAULTS=200 (leaders killed, paused, cut off, a full disk, lost records)
	@scripts/process.sh cluster $(or $(FAULTS),200)

.PHONY: kills
kills: kafka-image compile ## kill -9 of agents and servers on Kafka at every failpoint, KILLS=1000 times
	@scripts/process.sh kills $(or $(KILLS),1000)

.PHONY: power-cuts
power-cuts: build ## an index on a disk whose power is cut, CUTS=20 times, as root; RUNLOG_SAMPLES names the recorded runs
	@python3 tests/python/power_cuts.py bin/runlog "$(or $(RUNLOG_SAMPLES),../shared/data)" $(or $(CUTS),20)

.PHONY: bench
bench: kafka-image build ## the figures, beside the figures of alternatives: a report in target/bench; QUICK=1 for a short one, WITHOUT=streams,postgres leaves peers out
	@QUICK=$(QUICK) scripts/bench.sh run </dev/null

.PHONY: bench-compare
bench-compare: rocksdb ## which ratios of two reports differ beyond their spread: A=target/bench B=FOLDER
	@scripts/bench.sh compare "$(A)" "$(B)" </dev/null

.PHONY: soak
soak: kafka-image build ## memory of a server that projects at full speed, MINUTES=60, its indices in DATA=FOLDER; an hour takes 100 GB
	@scripts/bench.sh soak --minutes $(or $(MINUTES),60) $(if $(DATA),--data "$(DATA)") </dev/null

.PHONY: checkpoints
checkpoints: compile ## the cost of a checkpoint after every turn; RUNLOG_BENCH_TURNS is the most turns (5000)
	@scripts/process.sh checkpoints

.PHONY: instructions
instructions: rocksdb ## count the instructions per record in a release build, with valgrind
	@scripts/setup.sh test
	@cargo test --release --locked --test instructions -- --nocapture

.PHONY: kafka-up
kafka-up: kafka-image ## start one broker; the last line is bootstrap=HOST:PORT
	@scripts/kafka.sh up

.PHONY: kafka-down
kafka-down: ## remove that broker and its data
	@scripts/kafka.sh down

.PHONY: up
up: kafka-image build ## start a broker and a server with TLS and a token from deploy/compose.yaml; says how to ask them
	@scripts/setup.sh compose
	@deploy/runlog/build.sh
	@scripts/compose.sh up

.PHONY: down
down: ## stop them; their data stays
	@scripts/compose.sh down

.PHONY: up-three
up-three: kafka-image build ## start three brokers, two servers and Prometheus with the alerts from deploy/compose-three.yaml
	@scripts/setup.sh compose
	@deploy/runlog/build.sh
	@deploy/prometheus/build.sh
	@RUNLOG_COMPOSE=three scripts/compose.sh up

.PHONY: down-three
down-three: ## stop them; their data stays
	@RUNLOG_COMPOSE=three scripts/compose.sh down

.PHONY: compose-three-check
compose-three-check: kafka-image build ## start them under another name, stop a broker and then a server while records are appended, look at the alerts
	@scripts/setup.sh compose
	@deploy/runlog/build.sh
	@deploy/prometheus/build.sh
	@python3 tests/python/compose_three.py

.PHONY: compose-check
compose-check: kafka-image build ## start them under another name, check who gets in and that certificates are renewed, remove them
	@scripts/setup.sh compose
	@deploy/runlog/build.sh
	@python3 tests/python/compose.py

.PHONY: fronts
fronts: kafka-image build ## the recipes of docs/security.md: behind nginx (Debian's package), in a container, probed as by Kubernetes
	@scripts/setup.sh fronts
	@deploy/runlog/build.sh
	@python3 tests/python/fronts.py

.PHONY: hostile
hostile: build ## attacks on a server beside an honest client, each for ATTACK_SECONDS=15, then all at once: latency and failures of the honest client
	@python3 tests/python/hostile.py $(or $(ATTACK_SECONDS),15)

.PHONY: rotation
rotation: kafka-image build ## passwords, certificates and tokens change, and the broker restarts, while CLIENTS=6 append: nothing lost or doubled
	@scripts/setup.sh compose
	@python3 tests/python/rotation.py $(or $(CLIENTS),6)

.PHONY: clean
clean: ## remove ./bin and the compiled files
	@rm -rf bin "$(CARGO_TARGET_DIR)"
