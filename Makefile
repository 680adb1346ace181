# run: build and start; test: everything CI checks; bench: one benchmark against other servers;
# graphite-oracle: generated requests on graphite-web and on crates/graphite.
# The work is done by `cargo xtask` (crates/xtask); this file checks for tools and names commands.

HTTP ?= 127.0.0.1:9595
CARBON ?= 127.0.0.1:2003
DATA ?= ./data
NAME ?= remote-write
ARGS ?=

# rustup installs here, and a shell that was open before does not know it.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: run test bench graphite-oracle tools

run: tools
	cargo build --release --package chronolith
	@echo "Open http://$(HTTP)/ : the page's query has an answer after the first self-scrape (10 s). Ctrl-C stops."
	@exec "$$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/chronolith" \
		serve --data-dir "$(DATA)" --http "$(HTTP)" --carbon.listen "$(CARBON)"

test: tools
	cargo xtask ci $(ARGS)

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
