package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	directories   = 12
	files         = 6
	registers     = 4
	registerBytes = 8
	mountsMax     = 8
)

var nextValue atomic.Uint64

// One program on one mount.
type worker struct {
	h      *history
	client int
	root   string
	rng    *rand.Rand
	mount  int
	index  int
	// Registers stay open, so that the kernel's pages are in play; sometimes they are opened anew.
	open [files]*os.File
}

// Mostly a moment, sometimes long enough that grants come back.
func (w *worker) rest() {
	switch {
	case w.rng.Intn(400) == 0:
		time.Sleep(1200 * time.Millisecond)
	default:
		time.Sleep(time.Duration(w.rng.Intn(3000)) * time.Microsecond)
	}
}

func (w *worker) close() {
	for _, file := range w.open {
		if file != nil {
			file.Close()
		}
	}
}

func names(w *worker) {
	directory := w.rng.Intn(directories)
	key := fmt.Sprintf("names%d", directory)
	path := func(name int) string { return fmt.Sprintf("%s/d%d/%c", w.root, directory, 'a'+name) }
	one, other := w.rng.Intn(namesMax), w.rng.Intn(namesMax)
	switch w.rng.Intn(8) {
	case 0, 1:
		w.h.run(w.client, key, nameInput{op: "create", name: one}, func() any {
			file, err := os.OpenFile(path(one), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if err != nil {
				return w.failed(err, syscall.EEXIST)
			}
			defer file.Close()
			var stat syscall.Stat_t
			if err := syscall.Fstat(int(file.Fd()), &stat); err != nil {
				return w.h.failed(err)
			}
			return nameOutput{ok: true, inode: stat.Ino}
		})
	case 2:
		w.h.run(w.client, key, nameInput{op: "unlink", name: one}, func() any {
			if err := syscall.Unlink(path(one)); err != nil {
				return w.failed(err, syscall.ENOENT)
			}
			return nameOutput{ok: true}
		})
	case 3:
		if one == other {
			return
		}
		w.h.run(w.client, key, nameInput{op: "rename", name: one, to: other}, func() any {
			return w.rename(path(one), path(other))
		})
	case 4, 5, 6:
		w.h.run(w.client, key, nameInput{op: "stat", name: one}, func() any {
			var stat syscall.Stat_t
			if err := syscall.Lstat(path(one), &stat); err != nil {
				return w.failed(err, syscall.ENOENT)
			}
			return nameOutput{ok: true, inode: stat.Ino}
		})
	case 7:
		w.h.run(w.client, key, nameInput{op: "list"}, func() any {
			entries, err := os.ReadDir(fmt.Sprintf("%s/d%d", w.root, directory))
			if err != nil {
				return w.h.failed(err)
			}
			found := []string{}
			for _, entry := range entries {
				found = append(found, entry.Name())
			}
			sort.Strings(found)
			return nameOutput{ok: true, list: strings.Join(found, "")}
		})
	}
}

// Without replacing: where both names are one file the kernel treats a rename as done without a request, and it looks the
// two names up one after the other. That is no order of calls, on any file system between machines.
func (w *worker) rename(from, to string) any {
	old, err := syscall.BytePtrFromString(from)
	must(err)
	name, err := syscall.BytePtrFromString(to)
	must(err)
	here := -100 // AT_FDCWD
	_, _, errno := syscall.Syscall6(renameat2[runtime.GOARCH], uintptr(here), uintptr(unsafe.Pointer(old)),
		uintptr(here), uintptr(unsafe.Pointer(name)), 1, 0)
	switch errno {
	case 0:
		return nameOutput{ok: true}
	case syscall.EEXIST:
		return nameOutput{exists: true}
	}
	return w.failed(errno, syscall.ENOENT)
}

var renameat2 = map[string]uintptr{"amd64": 316, "arm64": 276}

func (w *worker) failed(err error, expected syscall.Errno) any {
	if !errors.Is(err, expected) {
		return w.h.failed(err)
	}
	return nameOutput{}
}

// Programs of one mount take turns at a file; those of different mounts do not. The kernel discards attributes of a
// file that arrive while its own write to the file ends, and keeps the older ones: a read beside a write of the same mount
// can miss what others wrote since (docs/consistency.md).
var turns [mountsMax][files]sync.Mutex

func data(w *worker) {
	which := w.rng.Intn(files)
	turn := &turns[w.mount][which]
	turn.Lock()
	defer turn.Unlock()
	if w.rng.Intn(3) == 0 {
		appendOrRead(w, which)
		return
	}
	if w.open[which] == nil || w.rng.Intn(20) == 0 {
		if w.open[which] != nil {
			w.open[which].Close()
		}
		w.open[which] = nil
		file, err := os.OpenFile(fmt.Sprintf("%s/r%d", w.root, which), os.O_RDWR, 0)
		if err != nil {
			w.h.failed(err)
			return
		}
		w.open[which] = file
	}
	file, register := w.open[which], w.rng.Intn(registers)
	key := fmt.Sprintf("register%d.%d", which, register)
	var bytes [registerBytes]byte
	if w.rng.Intn(3) == 0 {
		value := nextValue.Add(1)
		binary.LittleEndian.PutUint64(bytes[:], value)
		w.h.run(w.client, key, registerInput{write: true, value: value}, func() any {
			if _, err := file.WriteAt(bytes[:], int64(register*registerBytes)); err != nil {
				return w.h.failed(err)
			}
			return uint64(0)
		})
		return
	}
	w.h.run(w.client, key, registerInput{}, func() any {
		if _, err := file.ReadAt(bytes[:], int64(register*registerBytes)); err != nil {
			return w.h.failed(err)
		}
		return binary.LittleEndian.Uint64(bytes[:])
	})
}

func appendOrRead(w *worker, which int) {
	key, path := fmt.Sprintf("log%d", which), fmt.Sprintf("%s/l%d", w.root, which)
	if w.rng.Intn(8) == 0 {
		value := nextValue.Add(1)
		record := fmt.Sprintf("%07d\n", value)
		w.h.run(w.client, key, logInput{record: record}, func() any {
			file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return w.h.failed(err)
			}
			defer file.Close()
			if _, err = file.WriteString(record); err != nil {
				return w.h.failed(err)
			}
			return ""
		})
		return
	}
	w.h.run(w.client, key, logInput{}, func() any {
		file, err := os.Open(path)
		if err != nil {
			return w.h.failed(err)
		}
		defer file.Close()
		content, err := io.ReadAll(file)
		if err != nil {
			return w.h.failed(err)
		}
		return string(content)
	})
}
