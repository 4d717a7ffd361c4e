package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What holds between any two: whether bytes come through, and how late.
type ways struct {
	sync.Mutex
	changed *sync.Cond
	cut     [][]bool
	late    [][]time.Duration
	pids    []int
}

func newWays() *ways {
	w := &ways{pids: make([]int, *servers)}
	w.changed = sync.NewCond(&w.Mutex)
	w.heal()
	return w
}

// The number that stands for peers that are no servers: mounts and commands.
func clients() int { return *servers }

func (w *ways) is(server, pid int) {
	w.Lock()
	w.pids[server] = pid
	w.Unlock()
}

func (w *ways) set(change func(w *ways)) {
	w.Lock()
	change(w)
	w.Unlock()
	w.changed.Broadcast()
}

func (w *ways) heal() {
	w.set(func(w *ways) {
		w.cut, w.late = nil, nil
		for range clients() + 1 {
			w.cut = append(w.cut, make([]bool, clients()+1))
			w.late = append(w.late, make([]time.Duration, clients()+1))
		}
	})
}

// Waits until bytes come through, as those that a network repeats do.
func (w *ways) pass(from, to int) {
	w.Lock()
	for w.cut[from][to] {
		w.changed.Wait()
	}
	late := w.late[from][to]
	w.Unlock()
	time.Sleep(late)
}

// In front of one server. The source port of a connection identifies its peer.
type gate struct {
	ways     *ways
	server   int
	listener net.Listener
	mutex    sync.Mutex
	port     int
}

func newGate(ways *ways, server int) *gate {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	g := &gate{ways: ways, server: server, listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go g.carry(conn)
		}
	}()
	return g
}

func (g *gate) address() string { return g.listener.Addr().String() }

func (g *gate) to(port int) {
	g.mutex.Lock()
	g.port = port
	g.mutex.Unlock()
}

func (g *gate) carry(conn net.Conn) {
	defer conn.Close()
	from := g.ways.whoHas(conn.RemoteAddr().(*net.TCPAddr).Port)
	g.mutex.Lock()
	port := g.port
	g.mutex.Unlock()
	g.ways.pass(from, g.server)
	there, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return
	}
	defer there.Close()
	done := make(chan struct{}, 2)
	go g.pump(there, conn, from, g.server, done)
	go g.pump(conn, there, g.server, from, done)
	// When one direction ends both do, as with a process that has ended.
	<-done
}

func (g *gate) pump(into io.Writer, out io.Reader, from, to int, done chan struct{}) {
	bytes := make([]byte, 64<<10)
	for {
		count, err := out.Read(bytes)
		if count > 0 {
			g.ways.pass(from, to)
			if _, err := into.Write(bytes[:count]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	done <- struct{}{}
}

// The server whose process has the other end of a connection; else it is a client.
func (w *ways) whoHas(port int) int {
	table, err := os.ReadFile("/proc/net/tcp")
	must(err)
	local, inode := fmt.Sprintf(":%04X", port), ""
	for _, line := range strings.Split(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) > 9 && strings.HasSuffix(fields[1], local) && fields[9] != "0" {
			inode = "socket:[" + fields[9] + "]"
		}
	}
	w.Lock()
	pids := slices.Clone(w.pids)
	w.Unlock()
	for server, pid := range pids {
		if pid == 0 || inode == "" {
			continue
		}
		sockets, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
		for _, socket := range sockets {
			if to, err := os.Readlink(socket); err == nil && to == inode {
				return server
			}
		}
	}
	return clients()
}

// A free port.
func freePort() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
