# Installs rlock with make: run `make`, then `sudo make install`. Use cargo for everything else.
# `make static` builds a binary that runs on any Linux system of this architecture.
# `make dist` builds all files of a release.
# `make scripts` lists the scripts that run on a server, as build/scripts.rs assembles them from lua/.
PREFIX ?= /usr/local
DESTDIR ?=
CARGO_TARGET_DIR ?= target
PROGRAM ?= $(CARGO_TARGET_DIR)/release/rlock

ROOT = $(DESTDIR)$(PREFIX)
MAN = $(ROOT)/share/man/man1
DOC = $(ROOT)/share/doc/rlock
BASH = $(ROOT)/share/bash-completion/completions
ZSH = $(ROOT)/share/zsh/site-functions
FISH = $(ROOT)/share/fish/vendor_completions.d

STATIC = $(shell uname -m)-unknown-linux-musl
# Says what is missing, before cargo would.
CHECK = caller=make; . ./tests/support/install.sh && need_rust

.PHONY: all static dist scripts install uninstall

all:
	@$(CHECK) && set -x && cargo build --release --locked

static:
	@$(CHECK) && need_target $(STATIC) && set -x && \
	cargo build --release --locked --target $(STATIC)

dist:
	./packaging/dist

scripts:
	@cargo build && ls $$(ls -td $(CARGO_TARGET_DIR)/debug/build/rlock-cli-*/out | head -n 1)/*.lua

install:
	@test -f "$(PROGRAM)" || { echo "$(PROGRAM) is missing: run make first" >&2; exit 1; }
	install -D -m 755 "$(PROGRAM)" "$(ROOT)/bin/rlock"
	install -D -m 644 -t "$(MAN)" man/*.1
	install -D -m 644 -t "$(DOC)" README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE
	install -D -m 644 -t "$(DOC)/docs" docs/*
	install -D -m 644 completions/rlock.bash "$(BASH)/rlock"
	install -D -m 644 completions/_rlock "$(ZSH)/_rlock"
	install -D -m 644 completions/rlock.fish "$(FISH)/rlock.fish"

uninstall:
	rm -f "$(ROOT)/bin/rlock" "$(MAN)"/rlock.1 "$(MAN)"/rlock-*.1
	rm -f "$(BASH)/rlock" "$(ZSH)/_rlock" "$(FISH)/rlock.fish"
	rm -rf "$(DOC)"
