# One entry for people and CI. `make` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PORT ?= 8080
WORKERS ?= 2
MODEL ?= sentence-transformers/all-MiniLM-L6-v2
GO ?= go
# Google's storage is spoken to over HTTP alone: its gRPC client would make each program 17 MB larger. Hosts and users are
# looked up without the C library, by sie-server as by the programs that need no C. Every build has these tags, so that
# packages are compiled once: a third of them reach the network, and would be compiled anew for a program without C.
PURETAGS := -tags disable_grpc_modules,netgo,osusergo
GOTAGS := -tags native,disable_grpc_modules,netgo,osusergo
JOBS := $(shell nproc)
# What the binary says it was built from; given where there is no .git (Dockerfile).
COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- set-up: every step says what it does and is skipped when its result is there -----------------------------

deps: ## install the Debian packages the build needs, and unpack golden files
	@tools/setup/deps.sh build
	@test ! -d testdata/packed || python3 -B tools/golden/packed.py

testdata: ## write the golden files of testdata/packed, which git tracks, into testdata/golden; a second run does nothing
	@python3 -B tools/golden/packed.py

tokenizers: deps
	@tools/setup/tokenizers.sh

libsie: deps
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	@cmake --build build -j $(JOBS) --target sie cgo_flags >build/libsie.log 2>&1 || { cat build/libsie.log; exit 1; }

configure: deps
	@echo "sie: configuring the C library"
	@mkdir -p build
	@cmake -S . -B build $$(command -v ninja >/dev/null && echo -G Ninja) -DCMAKE_BUILD_TYPE=Release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }

# The programs of a cluster that run no model, and need no C.
PURE := sie-gateway sie-sidecar sie-config
LDFLAGS := -ldflags "-X github.com/sie-engine/sie/internal/build.Commit=$(COMMIT)"

build: libsie tokenizers ## build bin/sie-server, bin/sie-gateway, bin/sie-sidecar and bin/sie-config
	@mkdir -p bin
	@$(GO) build $(GOTAGS) -trimpath $(LDFLAGS) -o bin/ ./cmd/sie-server
	@$(MAKE) -s --no-print-directory pure
	@echo "sie: bin/sie-server, $(PURE:%=bin/%) are ready"

pure: ## build those of them that need no C (PURE=sie-gateway for one)
	@mkdir -p bin
	@CGO_ENABLED=0 $(GO) build $(PURETAGS) -trimpath $(LDFLAGS) -o bin/ $(PURE:%=./cmd/%)

build-arm64: deps ## build the same for arm64 on another machine, into bin/arm64 (g++-aarch64-linux-gnu, and rustup for Rust's library)
	@GO=$(GO) tools/setup/arm64.sh "$(COMMIT)"

sbom: ## write bin/sbom: what is in each program that has been built, as CycloneDX, and the licences of it
	@$(GO) run $(PURETAGS) ./tools/sbom -to bin/sbom -commit "$(COMMIT)" -cargo runtime/tokenizer/rust/Cargo.lock -- $$(ls bin/sie-* bin/cuda/sie-server 2>/dev/null)

build-cuda: deps tokenizers ## build bin/cuda/sie-server, with the CUDA kernels in it (TOOLKIT=13.0|12.4, TARGETS="80 90a")
	@tools/setup/build-cuda.sh "$(TOOLKIT)" "$(TARGETS)"

minilm: deps
	@tools/setup/minilm.sh

buckets: deps ## build the storage servers that the tests of the model cache use
	@tools/setup/buckets.sh

# ---- CUDA: compiled and checked without a GPU ------------------------------------------------------------------

# TOOLKIT=13.0 or 12.4 (for drivers older than 580); empty: the host's own where it is 12.4 or newer, else 13.0.
TOOLKIT ?=
# TARGETS="80 90a" for a part of them.
TARGETS ?=

cuda: deps ## find or install a CUDA toolkit and print where it is (TOOLKIT=13.0|12.4)
	@tools/setup/cuda.sh $(TOOLKIT)

kernels: deps ## compile every CUDA kernel for every target into libsie_cuda.a (TOOLKIT=…, TARGETS="80 90a")
	@tools/kernels/build.sh "$(TOOLKIT)" "$(TARGETS)" >/dev/null

kernels-check: deps ## compare the compiled kernels with kernels/budgets, and link them
	@tools/kernels/check.sh check "$(TOOLKIT)" "$(TARGETS)"

kernels-update: deps ## write kernels/budgets anew from what was compiled
	@tools/kernels/check.sh update "$(TOOLKIT)" "$(TARGETS)"

kernels-model: deps ## predict each kernel and whole models by the cost model, into bench/results/gpu-model.md
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	@cmake --build build -j $(JOBS) --target kernel_model
	@build/kernel_model | tee bench/results/gpu-model.md

kernels-launches: deps ## write kernels/budgets/launches.txt anew from the emulated tests
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	@cmake --build build -j $(JOBS)
	@rm -f build/launches
	SIE_SIMT_LAUNCHES=$(CURDIR)/build/launches ctest --test-dir build --output-on-failure -C whole -R 'emulated|cuda_'
	@python3 -B tools/kernels/launches.py update build/launches

kernels-matrix: deps ## kernels-check with both toolkits, 13.0 from PyPI and 12.4 from a Debian mirror
	@for toolkit in 13.0 12.4; do tools/kernels/check.sh check $$toolkit || exit 1; done

# ---- run -------------------------------------------------------------------------------------------------------

cluster: build ## run a cluster on this machine: NATS, sie-config, a gateway on PORT, WORKERS workers (ARGS='--gateways 2 …', MODEL=…; AUTOSCALE=1: none at first, WORKERS at most)
	@tools/setup/cluster.sh $(PORT) $(WORKERS) $(MODEL) $(if $(AUTOSCALE),--autoscale) $(ARGS)

run: build ## serve all-MiniLM-L6-v2 on port 8080 (PORT=…, MODEL=…)
	@tools/setup/run.sh $(PORT) $(MODEL)

# ---- test ------------------------------------------------------------------------------------------------------

test: deps ## set up and run every test that needs no GPU (CI runs this)
	@tools/setup/deps.sh test
	@tools/test/all.sh

venv-clients: deps
	@tools/setup/venv.sh clients

test-go: libsie tokenizers minilm ## Go tests only
	SIE_REQUIRE_MINILM=1 $(GO) test $(GOTAGS) ./...

test-race: libsie tokenizers minilm ## Go tests under the race detector, with the order of locks checked
	SIE_REQUIRE_MINILM=1 $(GO) test -tags native,lockcheck,disable_grpc_modules,netgo,osusergo -race ./...

test-long: ## random operations against plain models of the batcher and the registry, for minutes (SIE_SEED=… for one)
	SIE_LONG_TESTS=1 $(GO) test -count=1 -timeout 60m -run 'PlainModel|ManyAtOnce' ./runtime/batch ./runtime/registry

histories: ## calls to a control plane whose processes die, and an order that explains them (FOR=10m, SIE_SEED=…)
	$(GO) test -count=1 -timeout 0 -v -run TestHistories ./tools/test/histories -histories.for $(or $(FOR),10m)

test-c: deps ## kernel conformance and C tests
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	@cmake --build build -j $(JOBS)
	ctest --test-dir build --output-on-failure -C whole

test-random: deps ## random programs on the CPU, texts alone and in company (SEEDS=200 or SEEDS=1000-1199)
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	@cmake --build build -j $(JOBS) --target csrc_tests
	SIE_RANDOM_SEEDS=$(or $(SEEDS),200) build/csrc_tests =random_programs_give_a_text_the_same_bits_in_any_company

decisions: deps ## what bf16 decides otherwise than fp32 on 2,000 random items, on an emulated GPU (ITEMS=…)
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	SIE_DECISIONS=$(or $(ITEMS),2000) tools/test/emulated.sh -count=1 -timeout 60m -v -run TestGPUDecisions ./runtime/task

test-emulated: test-c tokenizers minilm ## the GPU path with emulated kernels and a stand-in driver
	@tools/test/emulated.sh

test-amx: test-c tokenizers ## models on the AMX kernels, with emulated tiles
	@tools/test/amx.sh

test-arm64: deps ## the C side for arm64 under qemu-user: products, the conformance list, csrc's tests (SHARDS=60, TESTS=…)
	@tools/test/arm64.sh list

test-asan: deps libsie tokenizers ## kernel conformance, C tests and a Go program under AddressSanitizer and UBSan, every case of them
	@tools/test/asan.sh

test-tsan: deps ## the C side's threads under ThreadSanitizer: csrc's tests, and the shares of CPU kernels at once
	@tools/test/tsan.sh

ARCH_FILES = $(filter runtime/arch/%,$(FILES))

mutate: $(if $(FILES),$(if $(ARCH_FILES),mutate-arch)$(if $(filter-out runtime/arch/%,$(FILES)), mutate-c),mutate-arch mutate-c) ## break every architecture and kernel in every way and see that a test notices; takes hours, goes on where stopped (FILES=…)

mutate-arch: libsie tokenizers ## break the Go files of the architectures; takes half a minute
	go run ./tools/mutate/golists --jobs $(JOBS) $(notdir $(ARCH_FILES))

mutate-c: deps
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	cmake --build build -j $(JOBS) >/dev/null
	tools/test/asan.sh build
	python3 -B tools/mutate/mutate.py run $(filter-out runtime/arch/%,$(FILES)) --build build --build build-asan --jobs $(JOBS)

test-clients: build minilm venv-clients ## the official clients against the real binary
	build/venv-clients/bin/python -m pytest -q tools/test/clients

test-flaky: build minilm buckets ## run tests many times beside a busy core and report those that ever fail (FLAKYFLAGS="--part go --times 100")
	@tools/setup/deps.sh test
	@tools/setup/venv.sh clients
	@cmake --build build -j $(JOBS) >/dev/null
	@tools/test/asan.sh build
	python3 -B tools/test/flaky.py $(FLAKYFLAGS)

# ROWS="server/kill9 r3-memory:*/*" for some; `bin/tools/chaos list` names them. RESULTS=file.json keeps the table.
CHAOS = bin/tools/chaos run --bin bin $(if $(ROWS),--rows "$(ROWS)") $(if $(RESULTS),--results "$(RESULTS)") $(CHAOSFLAGS)

chaos-build: build venv-clients
	@mkdir -p bin/tools
	@CGO_ENABLED=0 $(GO) build $(PURETAGS) -trimpath -o bin/tools/ ./tools/chaos

chaos: chaos-build ## kill, freeze, cut off and fill every part of a cluster under load, and see that no caller notices (ROWS=…)
	@$(CHAOS)

chaos-short: chaos-build ## the same in three minutes
	@$(CHAOS) --short

# FIXES="silence drain" for those whose names begin so; `bin/tools/chaos without --list` names them.
chaos-without: chaos-build ## leave each fix of the cluster's protocol out and see its test or chaos row turn red (FIXES=…)
	@bin/tools/chaos without --bin bin $(if $(FIXES),--fixes "$(FIXES)") $(if $(RESULTS),--results "$(RESULTS)")

# ---- Kubernetes --------------------------------------------------------------------------------------------------

KUBE := $(GO) -C tools/kube
CHART := deploy/helm/sie-cluster

chart-check: ## render the chart with every values file, decode each manifest strictly, compare flags and variables
	@$(KUBE) test -count=1 ./... # what it reads is outside of its module, and unseen by the cache

# ARGS='-f values.yaml --set a=b --all-apis'; files are relative to tools/kube.
chart-render: ## print the manifests of the chart (ARGS='-f ../../deploy/helm/sie-cluster/values-gke.yaml --all-apis')
	@$(KUBE) run ./cmd/chart render $(ARGS)

chart-package: ## pack the chart into build/charts
	@mkdir -p build/charts
	@$(KUBE) run ./cmd/chart package --to $(CURDIR)/build/charts

# Who may push is what `helm registry login` or `docker login` left.
chart-push: ## pack the chart and push it (TO=oci://registry/path, PLAIN_HTTP=1)
	@test -n "$(TO)" || { echo "chart-push: say where: make chart-push TO=oci://registry/path" >&2; exit 2; }
	@mkdir -p build/charts
	@file=$$($(KUBE) run ./cmd/chart package --to $(CURDIR)/build/charts) && \
	  $(KUBE) run ./cmd/chart push $(if $(PLAIN_HTTP),--plain-http) "$$file" "$(TO)"

# ALERTS=SIEDeadLetters,SIEWorkerDown for some.
observe-check: build ## make every alert fire by its cause and stop, and see that Prometheus answers every dashboard and trigger (ALERTS=…)
	@tools/setup/deps.sh observe
	@mkdir -p bin/tools
	@cd tools/observe/grafana && $(GO) test ./...
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/tools/ ./tools/observe
	@bin/tools/observe --bin bin $(if $(ALERTS),--alerts "$(ALERTS)")

docker-check: build minilm ## check the images' contents, start and stop, without a container engine
	@tools/setup/deps.sh test
	@$(MAKE) -s --no-print-directory sbom
	@tools/docker/check.sh
	@python3 -B -m unittest discover -s tools/docker

repro-check: ## build the images' programs twice from the last commit, and compare them byte for byte (NATIVE=1: sie-server too)
	@tools/test/reproducible.sh $(if $(NATIVE),--native)

# The four programs without C: the null device needs none.
kube-programs:
	@mkdir -p build/kube/bin
	@CGO_ENABLED=0 $(GO) build $(PURETAGS) -trimpath $(LDFLAGS) -o build/kube/bin/ ./cmd/sie-server $(PURE:%=./cmd/%)

# RUN=pattern for some of the tests.
kube-check: kube-programs ## have a real kube-apiserver take every manifest, and run the programs under the chart's NATS users, certificates and times
	@tools/setup/kube.sh
	@cd tools/kube && SIE_KUBE_CHECK=1 $(GO) test -count=1 -timeout 30m -v $(if $(RUN),-run '$(RUN)') ./natscheck ./accept ./release ./rollout

skew-check: kube-programs ## run every mixture of the programs of an earlier commit and of this one, and upgrade under load (BASE=HEAD~1)
	@base=$$(tools/setup/skew.sh $(or $(BASE),HEAD~1)) && cd tools/kube && \
		SIE_KUBE_CHECK=1 SIE_BASE_BIN=$$base SIE_BASE=$${base##*/} $(GO) test -count=1 -timeout 30m -v \
		-run 'EveryMixture|TheStore|RollingRestart' ./skew ./rollout

fuzz: libsie tokenizers ## every fuzz target for FUZZTIME (30s) each
	@tools/test/fuzz.sh

fuzz-http: libsie tokenizers ## fuzz a real server over HTTP, compare answers made together and alone, end it under load (FUZZTIME=10m, SEED=…)
	$(GO) test $(GOTAGS) -count=1 -timeout 0 -v ./tools/test/fuzzhttp -fuzz.for $(or $(FUZZTIME),10m) $(if $(SEED),-fuzz.seed $(SEED))

golden: minilm ## make testdata/golden and its archives in testdata/packed anew from the Python reference
	@tools/setup/venv.sh golden
	build/venv-golden/bin/python tools/golden/make.py

golden-sie: deps ## make what of testdata/golden sie-server itself makes; installs it whole, with Python 3.12
	@tools/setup/venv.sh sie
	HF_HUB_OFFLINE=1 build/venv-sie/bin/python -B tools/golden/late.py
	HF_HUB_OFFLINE=1 build/venv-sie/bin/python -B tools/golden/m3_text.py

golden-pylate: ## make what of testdata/golden PyLate makes
	@tools/setup/venv.sh pylate
	HF_HUB_OFFLINE=1 build/venv-pylate/bin/python -B tools/golden/pylate_colbert.py

# ---- measure ---------------------------------------------------------------------------------------------------

bench: build minilm ## race against sentence-transformers, ONNX Runtime and OpenVINO on this machine
	@tools/setup/venv.sh bench
	build/venv-bench/bin/python bench/race.py $(BENCHFLAGS)

bench-arch: build ## race the shapes of well-known architectures, random weights, against transformers, OpenVINO, ONNX Runtime (BENCHFLAGS)
	@tools/setup/venv.sh bench
	build/venv-bench/bin/python -B bench/archrace.py $(BENCHFLAGS)

bench-extract: build ## race extraction in published shapes, random weights, against gliner, gliclass, transformers and ONNX Runtime (BENCHFLAGS; HTTP=1: and sie-server 0.10.1)
	@tools/setup/venv.sh bench
	$(if $(HTTP),@tools/setup/venv.sh sie)
	build/venv-bench/bin/python -B bench/extractrace.py $(if $(HTTP),--published build/venv-sie/bin/sie-server) $(BENCHFLAGS)

bench-sie: build minilm ## race sie-server 0.10.1 over HTTP on this machine
	@tools/setup/venv.sh sie
	build/venv-sie/bin/python -B bench/servers.py $(BENCHFLAGS)

bench-models: build minilm ## a hundred models in turn on a memory budget for ten, and mixed traffic on three (BENCHFLAGS)
	python3 -B bench/models.py --results bench/results $(BENCHFLAGS)

bench-clock: ## what loads beside wide FMAs leave of this CPU's clock (BENCHFLAGS)
	python3 -B bench/clock.py $(BENCHFLAGS)

bench-scale: deps ## throughput over threads and nodes beside a simulator's, and predictions to 128 cores (BENCHFLAGS)
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	@cmake --build build -j $(JOBS) --target scale_bench
	python3 -B bench/scale.py $(BENCHFLAGS)

bench-heads: build minilm ## reranking and sparse encoding beside sentence-transformers (BENCHFLAGS)
	@tools/setup/venv.sh bench
	build/venv-bench/bin/python -B bench/heads.py $(BENCHFLAGS)

bench-against: build minilm ## race this tree against the build of an earlier commit, and compare vectors bit for bit (BASE=commit)
	@test -n "$(BASE)" || { echo "bench-against: say which commit: make bench-against BASE=HEAD~1" >&2; exit 2; }
	python3 -B bench/against.py "$(BASE)" $(BENCHFLAGS)

bench-lone: build minilm ## one short query at 1, 20 and 200 requests a second beside OpenVINO and ONNX Runtime, and idle CPU (BENCHFLAGS)
	@tools/setup/venv.sh bench
	build/venv-bench/bin/python -B bench/lone.py $(BENCHFLAGS)

bench-overload: build minilm ## ten times what the server can do: p99 of what it accepts, throughput kept (BENCHFLAGS)
	python3 -B bench/overload.py $(BENCHFLAGS)

bench-cluster: build minilm ## gateway, broker, sidecar and IPC beside direct HTTP, and 1 to 8 workers (BENCHFLAGS)
	python3 -B bench/cluster.py --results bench/results $(BENCHFLAGS)

bench-tenants: build minilm ## a tenant at ten times its rate beside two others, with and without quotas (BENCHFLAGS)
	python3 -B bench/tenants.py $(BENCHFLAGS)

bench-control: build ## 1,000 models and 200 workers: start, idle CPU, how soon a change is everywhere (BENCHFLAGS)
	@mkdir -p bin/tools
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/tools/ ./bench/control
	python3 -B bench/control.py --results bench/results $(BENCHFLAGS)

bench-long: build minilm ## short queries beside texts of 8,192 tokens (BENCHFLAGS)
	python3 -B bench/longtexts.py $(BENCHFLAGS)

# Before it: pip install transformers==5.23.0 tokenizers==0.23.3 into the Python that runs it (PYTHON=…).
bench-tokenizers: tokenizers ## tokenizing on one core beside the tokenizers library's batch calls, each family (BENCHFLAGS)
	@mkdir -p bin/tools
	@$(GO) build $(GOTAGS) -trimpath -o bin/tools/ ./bench/tokenize
	$(or $(PYTHON),python3) -B bench/tokens.py $(BENCHFLAGS)

bench-kernels: deps ## time every CUDA kernel, beside cuBLASLt and PyTorch; without a GPU check them (FILTER=text)
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	@tools/gpu/bench.sh "$(FILTER)"

bench-kernels-cpu: deps ## time every CPU kernel, in Go benchmark format
	@test -e build/CMakeCache.txt || $(MAKE) -s --no-print-directory configure
	@cmake --build build -j $(JOBS) --target kernel_tests
	build/kernel_tests --bench

gpu-bundle: build-cuda ## pack what a bare GPU host needs beside the checkout, and check that both fit on the way (TOOLKIT=…, TARGETS="80 90a")
	@tools/gpu/bundle.sh "$(TOOLKIT)" "$(TARGETS)"

# REHEARSE=1: the same script in toy sizes without a GPU; nothing is measured. PART=kernels or serving: that part, in full.
ifdef REHEARSE
gpu-check: libsie tokenizers ## check and time kernels, models and the server on this machine's GPU, in at most 9 minutes (REHEARSE=1, PART=…)
	@tools/gpu/rehearse.sh
else
gpu-check: export SIE_GPU_ANY_SIZE = 1
gpu-check: gpu-bundle
	@tools/gpu/check.sh $(addprefix --,$(PART)) build/gpu-results
endif

# ---- keep tidy ---------------------------------------------------------------------------------------------------

format: deps ## format Go and C
	@tools/setup/venv.sh lint
	git ls-files -z '*.go' | xargs -0 gofmt -w
	git ls-files -z '*.c' '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 build/venv-lint/bin/clang-format -i

lint: libsie tokenizers ## vet, staticcheck, golangci-lint, shellcheck, formats
	@tools/setup/venv.sh lint
	@tools/test/lint.sh

clean: ## remove what the build made, keep downloads
	rm -rf bin build/CMakeCache.txt build/CMakeFiles build/libsie.a build/libsie_gpu_emulated.a build/driver build/standin build-asan build/cuda-*

# Every target is a name, none a file.
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))
