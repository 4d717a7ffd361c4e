package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// A lie: what it changes in a call, or that it does not apply to it.
type lie struct {
	words string
	kind  kind
	tell  func(operation *porcupine.Operation) bool
}

var lies = []lie{
	{"a name that was removed is found", kind{"names", namesModel}, func(o *porcupine.Operation) bool {
		in := o.Input.(nameInput)
		out, told := o.Output.(nameOutput)
		if !told {
			return false
		}
		o.Output = nameOutput{ok: true, inode: 4711}
		return in.op == "stat" && !out.ok
	}},
	{"a name is made twice", kind{"names", namesModel}, func(o *porcupine.Operation) bool {
		in := o.Input.(nameInput)
		out, told := o.Output.(nameOutput)
		if !told {
			return false
		}
		o.Output = nameOutput{ok: true, inode: 4711}
		return in.op == "create" && !out.ok
	}},
	{"a listing leaves out a name", kind{"names", namesModel}, func(o *porcupine.Operation) bool {
		in := o.Input.(nameInput)
		out, told := o.Output.(nameOutput)
		if !told {
			return false
		}
		if in.op != "list" || out.list == "" {
			return false
		}
		o.Output = nameOutput{ok: true, list: out.list[1:]}
		return true
	}},
	{"a read shows an overwritten value", kind{"register", registerModel}, func(o *porcupine.Operation) bool {
		value, told := o.Output.(uint64)
		o.Output = value - 1
		return told && !o.Input.(registerInput).write && value > 1
	}},
	{"two appended records change places", kind{"log", logModel}, func(o *porcupine.Operation) bool {
		content, told := o.Output.(string)
		if !told || o.Input.(logInput).record != "" || len(content) < 16 {
			return false
		}
		o.Output = content[8:16] + content[:8] + content[16:]
		return true
	}},
}

// Tells each lie once, in a call that overlaps with no other, and sees it found out.
func falsify(h *history) bool {
	ok := true
	for _, lie := range lies {
		found := false
		for _, operations := range h.of(lie.kind.name) {
			at := quiet(operations, lie.tell)
			if at < 0 {
				continue
			}
			lie.tell(&operations[at])
			if porcupine.CheckOperationsTimeout(lie.kind.model, operations, 60*time.Second) == porcupine.Illegal {
				found = true
				break
			}
			fmt.Printf("falsified: %s: not found out\n", lie.words)
			return false
		}
		if found {
			fmt.Printf("falsified: %s: found out\n", lie.words)
		} else {
			fmt.Printf("falsified: %s: no call to tell it in\n", lie.words)
			ok = false
		}
	}
	return ok
}

// The last call that the lie applies to and that overlaps with no other; -1 for none.
func quiet(operations []porcupine.Operation, applies func(*porcupine.Operation) bool) int {
	sort.Slice(operations, func(a, b int) bool { return operations[a].Call < operations[b].Call })
	newest := int64(0)
	last := -1
	for i := range operations {
		copied := operations[i]
		alone := operations[i].Call > newest && (i+1 == len(operations) || operations[i+1].Call > operations[i].Return)
		if alone && applies(&copied) {
			last = i
		}
		newest = max(newest, operations[i].Return)
	}
	return last
}
