package main

import (
	"fmt"
	"math/rand"
	"sync"
	"syscall"
	"time"
)

// Something that happens to one server, and ends.
type fault struct {
	name string
	// Begins it, and returns what ends it.
	begin func(c *cluster, server int, rng *rand.Rand) func()
}

var faults = []fault{
	{"kill -9", func(c *cluster, server int, _ *rand.Rand) func() {
		c.kill(server)
		return func() { c.start(server) }
	}},
	{"pause", func(c *cluster, server int, _ *rand.Rand) func() {
		c.signal(server, syscall.SIGSTOP)
		return func() { c.signal(server, syscall.SIGCONT) }
	}},
	{"cut off from the other servers", func(c *cluster, server int, _ *rand.Rand) func() {
		c.ways.set(func(w *ways) { w.around(server, *servers, true, true, cut) })
		return c.ways.heal
	}},
	{"cut off from all peers", func(c *cluster, server int, _ *rand.Rand) func() {
		c.ways.set(func(w *ways) { w.around(server, *servers+1, true, true, cut) })
		return c.ways.heal
	}},
	{"receives nothing", func(c *cluster, server int, _ *rand.Rand) func() {
		c.ways.set(func(w *ways) { w.around(server, *servers, true, false, cut) })
		return c.ways.heal
	}},
	{"sends nothing", func(c *cluster, server int, _ *rand.Rand) func() {
		c.ways.set(func(w *ways) { w.around(server, *servers, false, true, cut) })
		return c.ways.heal
	}},
	{"cut off from one other server", func(c *cluster, server int, rng *rand.Rand) func() {
		other := (server + 1 + rng.Intn(*servers-1)) % *servers
		c.ways.set(func(w *ways) {
			cut(w, server, other)
			cut(w, other, server)
		})
		return c.ways.heal
	}},
	{"sends nothing to one other server", func(c *cluster, server int, rng *rand.Rand) func() {
		other := (server + 1 + rng.Intn(*servers-1)) % *servers
		c.ways.set(func(w *ways) { cut(w, server, other) })
		return c.ways.heal
	}},
	{"far away", func(c *cluster, server int, rng *rand.Rand) func() {
		late := time.Duration(5+rng.Intn(60)) * time.Millisecond
		c.ways.set(func(w *ways) {
			w.around(server, *servers+1, true, true, func(w *ways, from, to int) { w.late[from][to] = late })
		})
		return c.ways.heal
	}},
}

func cut(w *ways, from, to int) { w.cut[from][to] = true }

func (w *ways) around(server, others int, in, out bool, do func(w *ways, from, to int)) {
	for other := range others {
		if other == server {
			continue
		}
		if in {
			do(w, other, server)
		}
		if out {
			do(w, server, other)
		}
	}
}

// When something was wrong, since the history began.
type trouble struct {
	sync.Mutex
	times []wrong
	count map[string]int
}

type wrong struct {
	name        string
	server      int
	began, over int64
}

func (t *trouble) overlaps(call, ret int64) bool {
	t.Lock()
	defer t.Unlock()
	for _, wrong := range t.times {
		if call <= wrong.over && ret >= wrong.began {
			return true
		}
	}
	return false
}

// What was wrong during a call, in words.
func (t *trouble) during(call, ret int64) string {
	t.Lock()
	defer t.Unlock()
	words := "nothing wrong"
	for _, wrong := range t.times {
		if call <= wrong.over && ret >= wrong.began {
			words = fmt.Sprintf("server %d: %s (whole again after %.1f s)", wrong.server, wrong.name, float64(wrong.over-wrong.began)/1e9)
		}
	}
	return words
}

// One server after the other has something wrong with it until `over`; with no more than one at a time all that was asked has to be
// answered.
func (c *cluster) trouble(h *history, t *trouble, rng *rand.Rand, over <-chan struct{}) {
	wait := func(longest time.Duration) bool {
		select {
		case <-over:
			return false
		case <-time.After(100*time.Millisecond + time.Duration(rng.Int63n(int64(longest)))):
			return true
		}
	}
	for wait(1500 * time.Millisecond) {
		fault, server := faults[rng.Intn(len(faults))], rng.Intn(*servers)
		began := time.Since(h.began).Nanoseconds()
		end := fault.begin(c, server, rng)
		wait(4 * time.Second)
		end()
		c.awaitWhole()
		t.Lock()
		t.times = append(t.times, wrong{fault.name, server, began, time.Since(h.began).Nanoseconds()})
		t.count[fault.name]++
		t.Unlock()
	}
}

func (t *trouble) tell() {
	for _, fault := range faults {
		fmt.Printf("  %4d %s\n", t.count[fault.name], fault.name)
	}
}
