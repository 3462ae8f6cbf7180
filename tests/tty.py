#!/usr/bin/env python3
"""Runs the dashboard on a pseudo-terminal and checks that the terminal comes back as it was.

    tests/tty.py PATH/TO/cbtop SCENARIO...      (no scenario: all of them)

Python 3 and nothing else. Every wait has the same generous limit; nothing asserts on speed.
"""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

LIMIT = 120.0
SEQUENCE = re.compile(r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[=>78])")


class Screen:
    """What a terminal would show: cursor addressing, erasing and text; colours are skipped."""

    def __init__(self, columns, rows, answer):
        self.columns, self.rows = columns, rows
        self.clear()
        self.answer = answer
        self.modes = set()

    def resize(self, columns, rows):
        """Cuts off or adds on the right and at the bottom, as terminals do with the alternate screen."""
        blank = [" "] * columns
        kept = [(row + blank)[:columns] for row in self.cells[:rows]]
        self.cells = kept + [blank[:] for _ in range(rows - len(kept))]
        self.columns, self.rows = columns, rows

    def clear(self):
        self.cells = [[" "] * self.columns for _ in range(self.rows)]
        self.x = self.y = 0

    def feed(self, text):
        """Takes in text; returns what is left of an unfinished sequence."""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = SEQUENCE.match(text, at)
                if not found:
                    if len(text) - at < 64:
                        return text[at:]
                    raise AssertionError(f"unknown sequence {text[at:at + 20]!r}")
                self.control(found.group(1) or "", found.group(2))
                at = found.end()
                continue
            self.put(text[at])
            at += 1
        return ""

    def control(self, arguments, final):
        if final in "Hf" and final:
            y, x = ([int(a or 1) for a in arguments.split(";")] + [1, 1])[:2]
            self.x, self.y = x - 1, y - 1
        elif final == "J" and arguments in ("2", "3"):
            x, y = self.x, self.y
            self.clear()
            self.x, self.y = x, y
        elif final == "n" and arguments == "6":
            self.answer(f"\x1b[{self.y + 1};{self.x + 1}R".encode())
        elif final in ("h", "l") and arguments.startswith("?"):
            for mode in arguments[1:].split(";"):
                (self.modes.add if final == "h" else self.modes.discard)(mode)

    def put(self, char):
        if char == "\r":
            self.x = 0
        elif char == "\n":
            self.y += 1
        elif char >= " ":
            if 0 <= self.y < self.rows and 0 <= self.x < self.columns:
                self.cells[self.y][self.x] = char
            self.x += 1

    def text(self):
        return "\n".join("".join(row) for row in self.cells)


class Dashboard:
    """A dashboard running on a terminal of its own."""

    def __init__(self, program, *arguments, env=None):
        self.master, self.slave = os.openpty()
        self.screen = Screen(120, 40, lambda reply: os.write(self.master, reply))
        self.size(120, 40)
        # Not the defaults, so that "restored" is more than "set to defaults".
        attributes = termios.tcgetattr(self.slave)
        attributes[6][termios.VERASE] = b"\x08"
        attributes[3] &= ~termios.ECHOK
        termios.tcsetattr(self.slave, termios.TCSANOW, attributes)
        self.before = termios.tcgetattr(self.slave)
        self.rest = ""
        self.raw = b""
        self.errors = b""
        environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **(env or {})}
        self.child = subprocess.Popen(
            [program, *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def size(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(columns, rows)

    def read(self, seconds=0.05):
        while select.select([self.master], [], [], seconds)[0]:
            piece = os.read(self.master, 65536)
            self.raw = (self.raw + piece)[-200000:]
            self.pending = getattr(self, "pending", b"") + piece
            # Bytes of an unfinished character wait for the rest.
            for cut in range(4):
                try:
                    text = self.pending[: len(self.pending) - cut].decode()
                    break
                except UnicodeDecodeError:
                    continue
            else:
                raise AssertionError("output is not UTF-8")
            self.pending = self.pending[len(self.pending) - cut :] if cut else b""
            self.rest = self.screen.feed(self.rest + text)
            seconds = 0

    def wait(self, what, done):
        end = time.monotonic() + LIMIT
        while not done():
            if time.monotonic() > end:
                raise AssertionError(f"never came: {what}\n{self.screen.text()}")
            if self.child.poll() is not None:
                self.read(0)
                if done():
                    return
                raise AssertionError(
                    f"ended with {self.child.returncode} before: {what}\n{self.child.stderr.read().decode()}"
                )
            self.read()

    def shows(self, word):
        self.wait(repr(word), lambda: word in self.screen.text())

    def keys(self, keys):
        os.write(self.master, keys.encode())

    def is_raw(self):
        local = termios.tcgetattr(self.slave)[3]
        return not local & (termios.ICANON | termios.ECHO)

    def started(self):
        self.shows("decode")
        assert self.is_raw(), "not in raw mode"
        assert "1049" in self.screen.modes, "not on the alternate screen"
        return self

    def ended(self):
        end = time.monotonic() + LIMIT
        while self.child.poll() is None:
            if time.monotonic() > end:
                self.child.kill()
                raise AssertionError("does not end")
            self.read()
        self.read(0)
        self.errors = self.child.stderr.read()

    def restored(self, code=0):
        self.ended()
        assert self.child.returncode == code, (self.child.returncode, self.errors)
        assert self.errors == b"", self.errors
        after = termios.tcgetattr(self.slave)
        assert after == self.before, f"terminal settings differ:\n{self.before}\n{after}"
        left = self.screen.modes - {"25"}
        assert not left, f"modes left on: {left}"
        assert "25" in self.screen.modes or b"\x1b[?25l" not in self.raw, "the cursor is hidden"
        assert self.rest == "", f"an unfinished sequence: {self.rest!r}"
        self.nothing_left()

    def nothing_left(self):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            try:
                os.killpg(self.child.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        raise AssertionError("processes are left behind")


def keys_and_sizes(program):
    d = Dashboard(program).started()
    d.keys(" ")
    d.shows("paused")
    d.keys("N")
    d.shows("paused before layer 1 of 8")
    d.keys("N")
    d.shows("paused before layer 2 of 8")
    d.keys("n")
    d.wait("the end of the token", lambda: "before layer" not in d.screen.text())
    d.keys(" ")
    d.shows("decode")
    d.keys("?")
    d.shows("run one token, then pause")
    d.keys("?")
    d.wait("help closed", lambda: "run one token, then pause" not in d.screen.text())
    d.keys("p")
    d.keys("The capital of Spain is")
    d.shows("The capital of Spain is")
    d.keys("\r")
    d.shows("Madrid")
    for size in [(20, 5), (10, 3), (1, 1), (120, 40), (200, 60), (120, 40)]:
        d.size(*size)
        if size[0] >= 20:
            d.wait(f"the last line at {size}", lambda: "q quit" in "".join(d.screen.cells[-1]))
        if size[0] >= 120:
            d.wait(f"the frame at {size}", lambda: d.screen.cells[0][-1] == "╮")
        if size == (10, 3):
            d.wait("three lines", lambda: "t/s" in d.screen.text() and "ctx" in "".join(d.screen.cells[2]))
        if size == (1, 1):
            # No room for anything to wait for: it must only go on.
            d.read(0.5)
    d.keys("q")
    d.restored()


def model_and_flags(program):
    here = os.path.dirname(os.path.abspath(__file__))
    model = os.path.join(here, "fixtures/models/llama.Q4_K_M.gguf")
    d = Dashboard(program, "-m", model, "--recommend", "--ascii", "--loop", "-c", "64", env={"NO_COLOR": "1"}).started()
    assert d.screen.text().isascii(), d.screen.text()
    d.keys("q")
    d.restored()


def until_the_end(program):
    d = Dashboard(program, "-n", "5", "--pace", "0")
    d.shows("finished")
    d.keys("r")
    d.keys("q")
    d.restored()


def control_c(program):
    d = Dashboard(program).started()
    d.keys("\x03")
    d.restored()


def paused_then_control_c(program):
    d = Dashboard(program).started()
    d.keys(" ")
    d.shows("paused")
    d.keys("\x03")
    d.restored()


def by_signal(number):
    def scenario(program):
        d = Dashboard(program).started()
        d.child.send_signal(number)
        d.restored()

    return scenario


def shell(program):
    """The little of a shell that job control needs: runs the program in the foreground, `fg` after a line."""
    # A shell in the background may still hand the terminal over.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(program, [program])
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.tcsetpgrp(0, os.getpgrp())
        print("STOPPED", flush=True)
        sys.stdin.readline()
        os.tcsetpgrp(0, child)
        os.killpg(child, signal.SIGCONT)
        _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


def suspended(program):
    """Ctrl-Z gives the terminal back to the shell while the program is stopped, and `fg` takes it again."""
    d = Dashboard(sys.executable, os.path.abspath(__file__), program, "shell").started()
    d.keys("\x1a")
    d.shows("STOPPED")
    assert "1049" not in d.screen.modes, "stopped on the alternate screen"
    assert termios.tcgetattr(d.slave) == d.before, "stopped with the terminal taken"
    d.screen.clear()
    d.keys("\n")
    d.shows("q quit")
    assert d.is_raw() and "1049" in d.screen.modes, "the terminal is not taken again"
    d.keys("q")
    d.restored()


def killed(program):
    """Nobody can restore the terminal after `kill -9`; nothing else must be left behind."""
    d = Dashboard(program).started()
    d.child.kill()
    d.ended()
    assert d.child.returncode == -signal.SIGKILL
    d.nothing_left()


def terminal_gone(program):
    d = Dashboard(program).started()
    os.close(d.slave)
    os.close(d.master)
    end = time.monotonic() + LIMIT
    while d.child.poll() is None:
        if time.monotonic() > end:
            d.child.kill()
            raise AssertionError("goes on without a terminal")
        time.sleep(0.05)
    errors = d.child.stderr.read()
    assert b"panicked" not in errors, errors
    d.nothing_left()


def refused_before_the_screen(program):
    """An error before the dashboard opens leaves the terminal alone."""
    d = Dashboard(program, "-m", "/nowhere/model.gguf")
    d.ended()
    assert d.child.returncode == 2 and d.errors.startswith(b"cbtop: /nowhere"), d.errors
    assert b"\x1b" not in d.raw, d.raw
    assert termios.tcgetattr(d.slave) == d.before


SCENARIOS = {
    "keys_and_sizes": keys_and_sizes,
    "model_and_flags": model_and_flags,
    "until_the_end": until_the_end,
    "control_c": control_c,
    "paused_then_control_c": paused_then_control_c,
    "sigterm": by_signal(signal.SIGTERM),
    "sighup": by_signal(signal.SIGHUP),
    "sigint": by_signal(signal.SIGINT),
    "suspended": suspended,
    "killed": killed,
    "terminal_gone": terminal_gone,
    "refused_before_the_screen": refused_before_the_screen,
}


def main():
    program, *names = sys.argv[1:]
    if names == ["shell"]:
        shell(program)
    # One at a time, whoever runs them: each dashboard keeps every CPU busy.
    lock = os.open(program, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for name in names or SCENARIOS:
        SCENARIOS[name](program)
        print(f"{name}: ok", flush=True)


if __name__ == "__main__":
    main()
