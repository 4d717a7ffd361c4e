// Records what programs see on several mounts of one server, and checks that it is linearizable: that there is one order
// of all calls, each between its begin and its end, in which every answer is right. Porcupine searches for the order.
//
// Two kinds of histories: names (create, unlink, rename, stat, readdir) in small directories, and data (pwrite and pread
// of registers, appends and whole reads of logs). Afterwards each of five histories is falsified on purpose, and has to be
// found out.
//
// With -frieze it starts servers of one cluster itself (three, each with everything, or -servers 5 -copies 3), with a mount of
// each, and in rounds of load kills, pauses and cuts off one of them after the other; and holds that cuts are causally closed and
// never change (cluster.go, faults.go, causal.go).
package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

var (
	mounts    = flag.String("mounts", "", "mounted directories of one server, separated by commas")
	seconds   = flag.Float64("seconds", 10, "how long the load runs")
	workers   = flag.Int("workers", 2, "goroutines of each kind on each mount")
	seed      = flag.Int64("seed", 1, "of the load and of the faults")
	frieze    = flag.String("frieze", "", "the command: start a cluster and break one server after the other")
	directory = flag.String("directory", "", "for the data and logs of the cluster")
	keep      = flag.Bool("keep", false, "keep them")
	round     = flag.Float64("round", 25, "seconds of load before what was seen is checked, with -frieze")
)

// One call, as a history needs it.
type event struct {
	key           string
	input, output any
	call, ret     int64
	client        int
}

type history struct {
	sync.Mutex
	began  time.Time
	events []event
	// Calls without an answer: they may have had an effect.
	lost int
	// Whether such calls are to be expected.
	faulty bool
}

// What a call comes back with that the servers did not answer in time.
type lost struct{}

// It may have an effect at any later time, or none.
const never = math.MaxInt64

func (h *history) run(client int, key string, input any, do func() any) {
	call := time.Since(h.began).Nanoseconds()
	output := do()
	ret := time.Since(h.began).Nanoseconds()
	h.Lock()
	defer h.Unlock()
	if _, is := output.(lost); is {
		h.lost++
		if !changes(input) {
			return
		}
		ret = never
	}
	h.events = append(h.events, event{key, input, output, call, ret, client})
}

func changes(input any) bool {
	switch in := input.(type) {
	case nameInput:
		return in.op != "stat" && in.op != "list"
	case registerInput:
		return in.write
	case logInput:
		return in.record != ""
	}
	return true
}

// An error while a server is down is expected.
func (h *history) failed(err error) any {
	if !h.faulty {
		fatal(err.Error())
	}
	return lost{}
}

func (h *history) of(prefix string) map[string][]porcupine.Operation {
	found := map[string][]porcupine.Operation{}
	for _, e := range h.events {
		if strings.HasPrefix(e.key, prefix) {
			found[e.key] = append(found[e.key], porcupine.Operation{
				ClientId: e.client, Input: e.input, Output: e.output, Call: e.call, Return: e.ret,
			})
		}
	}
	return found
}

func main() {
	flag.Parse()
	if *frieze != "" {
		lab()
		return
	}
	roots := strings.Split(*mounts, ",")
	if len(roots) < 2 || len(roots) > mountsMax {
		fatal("name two to eight mounts with -mounts")
	}
	h := &history{began: time.Now()}
	prepare(roots[0], "lin")
	load(h, roots, "lin", *seconds, *seed)
	if ok := checkAll(h); !falsify(h) || !ok {
		os.Exit(1)
	}
}

func checkAll(h *history) bool {
	kinds := []kind{{"names", namesModel}, {"register", registerModel}, {"log", logModel}}
	ok := true
	for _, k := range kinds {
		ok = check(h, k) && ok
	}
	return ok
}

// Rounds of load on a cluster that has always something wrong with it.
func lab() {
	c := build(*frieze, *directory)
	over := make(chan struct{})
	began, rng := time.Now(), rand.New(rand.NewSource(*seed))
	t := &trouble{count: map[string]int{}}
	all := &history{began: began}
	cuts := &causal{c: c}
	cuts.prepare(c.mounts[0])
	background := cuts.run(*seed, over)
	background.Go(func() { c.trouble(all, t, rng, over) })
	calls, during, unknown := 0, 0, 0
	for number := int64(1); time.Since(began).Seconds() < *seconds || number <= 2; number++ {
		h := &history{began: began, faulty: true}
		root := fmt.Sprintf("lin%d", number)
		prepare(c.mounts[0], root)
		load(h, c.mounts, root, *round, *seed*1000+number)
		if !checkAll(h) {
			c.fail(fmt.Sprintf("round %d is not linearizable", number))
		}
		for _, e := range h.events {
			calls++
			if t.overlaps(e.call, e.ret) {
				during++
			}
		}
		unknown += h.lost
		h.tellLongest(t)
		fmt.Printf("round %d: after %.0f s %d calls, %d of them while something was wrong, %d not answered; %d cuts\n",
			number, time.Since(began).Seconds(), calls, during, unknown, cuts.reads)
		if number == 1 && !falsify(h) {
			c.fail("a falsified history was not found out")
		}
	}
	close(over)
	background.Wait()
	c.ways.heal()
	c.awaitWhole()
	cuts.again(rng)
	fmt.Printf("%d calls are linearizable, %d of them were under way while something was wrong, %d were not answered\n", calls, during, unknown)
	fmt.Printf("%d cuts were closed; 200 at most of them, read again by every mount, show what they showed\n", cuts.reads)
	t.tell()
	c.stop()
	if !*keep {
		must(os.RemoveAll(*directory))
	}
}

type kind struct {
	name  string
	model porcupine.Model
}

func prepare(root, name string) {
	must(os.Mkdir(root+"/"+name, 0o755))
	for i := range directories {
		must(os.Mkdir(fmt.Sprintf("%s/%s/d%d", root, name, i), 0o755))
	}
	for i := range files {
		must(os.WriteFile(fmt.Sprintf("%s/%s/r%d", root, name, i), make([]byte, registers*registerBytes), 0o644))
		must(os.WriteFile(fmt.Sprintf("%s/%s/l%d", root, name, i), nil, 0o644))
	}
}

// All mounts at once, then one call after the other on the mounts in turn: calls that overlap with no other.
func load(h *history, roots []string, name string, seconds float64, seed int64) {
	until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var all sync.WaitGroup
	client := 0
	for m, root := range roots {
		for w := range *workers {
			for _, work := range []func(*worker){names, data} {
				client++
				rng := rand.New(rand.NewSource(seed*1000 + int64(client)))
				self := &worker{h: h, client: client, root: root + "/" + name, rng: rng, mount: m, index: w}
				all.Go(func() {
					for time.Now().Before(until) {
						work(self)
						self.rest()
					}
					self.close()
				})
			}
		}
	}
	all.Wait()
	last := []*worker{}
	for m, root := range roots {
		rng := rand.New(rand.NewSource(seed + int64(m)))
		last = append(last, &worker{h: h, client: 0, root: root + "/" + name, rng: rng, mount: m})
	}
	for i := range 600 {
		names(last[i%len(last)])
		data(last[i%len(last)])
	}
	for _, self := range last {
		self.close()
	}
}

// The calls that took longest, and what was wrong then.
func (h *history) tellLongest(t *trouble) {
	sort.Slice(h.events, func(a, b int) bool {
		return h.events[a].ret-h.events[a].call > h.events[b].ret-h.events[b].call
	})
	for _, e := range h.events[:min(3, len(h.events))] {
		began := h.began.Add(time.Duration(e.call)).UTC().Format("15:04:05.000")
		fmt.Printf("  longest: %s %.1f s from %s on by client %d, %s\n", e.key, float64(e.ret-e.call)/1e9, began, e.client, t.during(e.call, e.ret))
	}
}

func check(h *history, k kind) bool {
	count, overlapping := 0, 0
	for key, operations := range h.of(k.name) {
		result, info := porcupine.CheckOperationsVerbose(k.model, operations, 60*time.Second)
		if result != porcupine.Ok {
			fmt.Printf("%s: %s is %s\n", k.name, key, result)
			show(k, info)
			leftOver(k, operations, info)
			return false
		}
		count += len(operations)
		for i := 1; i < len(operations); i++ {
			if operations[i].Call < operations[i-1].Return {
				overlapping++
			}
		}
	}
	fmt.Printf("%s: %d calls are linearizable, %d of them overlapped the one before\n", k.name, count, overlapping)
	return true
}

// Where the search got stuck: the end of the longest order it found, and the first calls that do not fit behind it.
func show(k kind, info porcupine.LinearizationInfo) {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	for _, o := range longest[max(0, len(longest)-12):] {
		fmt.Println("  fits:     ", describe(k, o))
	}
}

func leftOver(k kind, operations []porcupine.Operation, info porcupine.LinearizationInfo) {
	fits := 0
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			fits = max(fits, len(order))
		}
	}
	sort.Slice(operations, func(a, b int) bool { return operations[a].Return < operations[b].Return })
	for _, o := range operations[max(0, fits-6):min(len(operations), fits+6)] {
		fmt.Println("  by return:", describe(k, o))
	}
}

func describe(k kind, o porcupine.Operation) string {
	words := k.model.DescribeOperation(o.Input, o.Output)
	return fmt.Sprintf("client %d [%.6f, %.6f] %s", o.ClientId, float64(o.Call)/1e9, float64(o.Return)/1e9, words)
}

func must(err error) {
	if err != nil {
		fatal(err.Error())
	}
}

func fatal(words string) {
	fmt.Fprintln(os.Stderr, "linearizability: "+words)
	os.Exit(2)
}
