package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sync"
	"time"
)

// Each writer records how much it has read of the other writers, before it writes once more. In a causally closed cut no
// writer has read more of another than that one has written.
// On the first mounts: there are at least so many.
const writers = 3

type seen [writers]uint64

func (s seen) bytes() []byte {
	bytes := make([]byte, 0, 8*writers)
	for _, count := range s {
		bytes = binary.LittleEndian.AppendUint64(bytes, count)
	}
	return bytes
}

func read(path string) (seen, error) {
	var s seen
	bytes, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if len(bytes) == 0 {
		return s, nil
	}
	if len(bytes) != 8*writers {
		return s, fmt.Errorf("%s holds %d bytes: half a write", path, len(bytes))
	}
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(bytes[8*i:])
	}
	return s, nil
}

// A cut, and what it showed when it was first read.
type cutRead struct {
	at    string
	shown [writers]seen
}

type causal struct {
	sync.Mutex
	c     *cluster
	cuts  []cutRead
	reads int
}

func (k *causal) path(root string, writer int) string {
	return fmt.Sprintf("%s/causal%d", root, writer)
}

func (k *causal) prepare(root string) {
	for writer := range writers {
		must(os.WriteFile(k.path(root, writer), nil, 0o644))
	}
}

// Reads the others' and writes its own. What fails has not been seen, and may have been written: the next write says at least as much.
func (k *causal) write(writer int, last *seen) {
	root := k.c.mounts[writer]
	for other := range writers {
		if found, err := read(k.path(root, other)); err == nil && other != writer {
			last[other] = max(last[other], found[other])
		}
	}
	last[writer]++
	if file, err := os.OpenFile(k.path(root, writer), os.O_WRONLY, 0); err == nil {
		_, _ = file.WriteAt(last.bytes(), 0)
		_ = file.Close()
	}
}

// Reads all at one instant of the last seconds, by any mount.
func (k *causal) cut(rng *rand.Rand) {
	at := time.Now().Add(-time.Duration(rng.Int63n(int64(8 * time.Second)))).UTC().Format("2006-01-02T15:04:05.000000Z")
	if shown, ok := k.show(rng.Intn(len(k.c.mounts)), at); ok {
		k.Lock()
		k.cuts = append(k.cuts, cutRead{at, shown})
		k.Unlock()
	}
}

// False where it could not be read at the moment.
func (k *causal) show(mount int, at string) ([writers]seen, bool) {
	var shown [writers]seen
	for writer := range writers {
		found, err := read(fmt.Sprintf("%s/.at/%s/causal%d", k.c.mounts[mount], at, writer))
		if os.IsNotExist(err) {
			// Before it was made.
			return shown, false
		}
		if err != nil {
			if len(err.Error()) > 0 && !isPathError(err) {
				k.c.fail(err.Error())
			}
			return shown, false
		}
		shown[writer] = found
	}
	for reader := range writers {
		for other := range writers {
			if shown[reader][other] > shown[other][other] {
				words, _ := json.Marshal(shown)
				k.c.fail(fmt.Sprintf("the cut at %s, read by mount %d, is not closed: writer %d has read write %d of %d, which it does not show: %s",
					at, mount, reader, shown[reader][other], other, words))
			}
		}
	}
	k.Lock()
	k.reads++
	k.Unlock()
	return shown, true
}

func isPathError(err error) bool {
	_, is := err.(*os.PathError)
	return is
}

// Every cut, read again by every mount, shows what it showed.
func (k *causal) again(rng *rand.Rand) {
	cuts := k.cuts
	rng.Shuffle(len(cuts), func(a, b int) { cuts[a], cuts[b] = cuts[b], cuts[a] })
	for _, cut := range cuts[:min(len(cuts), 200)] {
		for mount := range k.c.mounts {
			shown, ok := k.show(mount, cut.at)
			if !ok {
				k.c.fail(fmt.Sprintf("the cut at %s cannot be read again by mount %d", cut.at, mount))
			}
			if shown != cut.shown {
				k.c.fail(fmt.Sprintf("the cut at %s showed %v, and shows %v by mount %d", cut.at, cut.shown, shown, mount))
			}
		}
	}
}

// Runs until `over`.
func (k *causal) run(seed int64, over <-chan struct{}) *sync.WaitGroup {
	var all sync.WaitGroup
	isOver := func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}
	for writer := range writers {
		all.Go(func() {
			rng := rand.New(rand.NewSource(seed + int64(writer)))
			var last seen
			for !isOver() {
				k.write(writer, &last)
				time.Sleep(time.Duration(rng.Intn(20)) * time.Millisecond)
			}
		})
	}
	all.Go(func() {
		rng := rand.New(rand.NewSource(seed + writers))
		for !isOver() {
			k.cut(rng)
			time.Sleep(50 * time.Millisecond)
		}
	})
	return &all
}
