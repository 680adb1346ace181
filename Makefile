# run: build and start (UI=plain: without the web interface, which needs node); demo: the same with generated data,
# in a temporary directory unless DATA is given; ui: the bundle of the interface alone;
# test: everything CI checks; test-all: what a release needs besides; bench: one benchmark against other servers;
# graphite-oracle: generated requests on graphite-web and on crates/graphite.
# The work is done by `cargo xtask` (crates/xtask); this file checks for tools and names commands.

HTTP ?= 127.0.0.1:9595
CARBON ?= 127.0.0.1:2003
DATA ?= ./data
NAME ?= remote-write
ARGS ?=
# `plain`: the next build has a page with one query and a table instead of the interface.
UI ?= bundle

# rustup installs here, and a shell that was open before does not know it.
export PATH := $(HOME)/.cargo/bin:$(PATH)

# Where cargo puts the builds of `run` and `demo`: the profile `quick` has no link-time optimisation.
QUICK = $$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/quick

# Parts of a release that a program to try does without: they take a quarter of the time. Memory comes from the C library's
# allocator, and buckets are S3 or a directory.
QUICK_FEATURES = --no-default-features --features png

# What the wait of a first build is for; a later one takes seconds.
FIRST_BUILD = [ -x "$(QUICK)/chronolith" ] || \
	echo "The first build compiles about 300 crates and takes some minutes of all cores; the next one takes seconds."

.PHONY: run demo test test-all bench graphite-oracle tools ui ui-plain node-tools

run: tools $(if $(filter plain,$(UI)),ui-plain,ui)
	@$(FIRST_BUILD)
	cargo build --profile quick --package chronolith $(QUICK_FEATURES)
	@echo "Open http://$(HTTP)/ : the page shows the server's first samples within a few seconds. Ctrl-C stops."
	@exec "$(QUICK)/chronolith" serve --data-dir "$(DATA)" --http "$(HTTP)" --carbon.listen "$(CARBON)"

# DATA has a default for `run`, so that its origin says whether a directory was asked for.
demo: tools $(if $(filter plain,$(UI)),ui-plain,ui)
	@$(FIRST_BUILD)
	cargo build --profile quick --package chronolith $(QUICK_FEATURES)
	cargo build --profile quick --package chronolith-demo
	@exec "$(QUICK)/chronolith-demo" run --server "$(QUICK)/chronolith" --http "$(HTTP)" \
		$(if $(filter file,$(origin DATA)),,--data-dir "$(DATA)") $(ARGS)

# Packages are installed again when their lock file is newer; equal packages give equal bytes.
ui: node-tools
	@cd crates/ui && { [ node_modules/.package-lock.json -nt package-lock.json ] || \
		npm ci --ignore-scripts --no-audit --no-fund --loglevel=error; } && npm run --silent build

ui-plain:
	@rm -rf crates/ui/build/lib crates/ui/build/app.js crates/ui/build/app.css crates/ui/build/licences.txt crates/ui/build/sources.txt

test: tools
	cargo xtask ci $(ARGS)

# Before a release: also builds without optional parts, a long simulation, fuzzers, and figures of speed.
test-all: tools
	cargo xtask ci --all $(ARGS)

bench: tools
	cargo xtask bench $(NAME) $(ARGS)

graphite-oracle: tools
	tools/graphite-oracle/run.sh setup
	cargo run --package chronolith-graphite --example differential -- $(ARGS)

# A C compiler links Rust programs and builds nothing of ours. As root, or in CI, it is installed.
tools:
	@command -v cargo > /dev/null || { \
		echo "cargo is missing; install Rust:"; \
		echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env"; exit 1; }
	@command -v cc > /dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
			apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev; \
		else \
			echo "cc is missing; sudo apt-get install -y --no-install-recommends gcc libc6-dev"; exit 1; \
		fi; }

# Only the bundle of the web interface needs them. Debian's npm brings a Node.js that is new enough from Debian 12 on.
node-tools:
	@command -v npm > /dev/null && command -v node > /dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
			apt-get update -q && apt-get install -y -q --no-install-recommends nodejs npm; \
		else \
			echo "node or npm is missing; sudo apt-get install -y --no-install-recommends nodejs npm"; \
			echo "or leave the web interface out: make run UI=plain"; exit 1; \
		fi; }
	@node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' || { \
		echo "node is older than 18; install a newer one (https://nodejs.org), or make run UI=plain"; exit 1; }
