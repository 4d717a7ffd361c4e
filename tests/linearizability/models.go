package main

import (
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"
)

const namesMax = 3

// What a directory holds: the inode of each of its few names, 0 for none, or one that no answer named.
type nameState [namesMax]uint64

const untold = ^uint64(0)

type nameInput struct {
	op       string
	name, to int
}

type nameOutput struct {
	ok bool
	// The new name was taken.
	exists bool
	inode  uint64
	list   string
}

var namesModel = porcupine.Model{
	Init: func() any { return nameState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in := state.(nameState), input.(nameInput)
		there := s[in.name] != 0
		out, told := output.(nameOutput)
		if !told {
			return true, s.maybe(in)
		}
		if in.op == "stat" && s[in.name] == untold && out.ok {
			s[in.name] = out.inode
		}
		switch in.op {
		case "create":
			if out.ok == there {
				return false, s
			}
			if out.ok {
				s[in.name] = out.inode
			}
			return true, s
		case "unlink":
			if out.ok != there {
				return false, s
			}
			s[in.name] = 0
			return true, s
		case "rename":
			switch {
			case out.exists:
				return s[in.to] != 0, s
			case !out.ok:
				return !there, s
			case !there || s[in.to] != 0:
				return false, s
			}
			s[in.to], s[in.name] = s[in.name], 0
			return true, s
		case "stat":
			return out.ok == there && out.inode == s[in.name], s
		default:
			found := ""
			for name, inode := range s {
				if inode != 0 {
					found += fmt.Sprintf("%c", 'a'+name)
				}
			}
			return found == out.list, s
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// After a change without an answer: if it was possible, it happened. The search puts a change that did not happen after all
// others.
func (s nameState) maybe(in nameInput) nameState {
	there := s[in.name] != 0
	switch {
	case in.op == "create" && !there:
		s[in.name] = untold
	case in.op == "unlink":
		s[in.name] = 0
	case in.op == "rename" && there && s[in.to] == 0:
		s[in.to], s[in.name] = s[in.name], 0
	}
	return s
}

type registerInput struct {
	write bool
	value uint64
}

var registerModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		in := input.(registerInput)
		if in.write {
			return true, in.value
		}
		return output == state, state
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

type logInput struct {
	// What is appended; nothing: the whole is read.
	record string
}

var logModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		content, in := state.(string), input.(logInput)
		if in.record != "" {
			return true, content + in.record
		}
		return output.(string) == content, content
	},
	DescribeOperation: func(input, output any) string {
		content, _ := output.(string)
		tail := strings.ReplaceAll(content[max(0, len(content)-24):], "\n", ",")
		return fmt.Sprintf("%q -> %d records, the last %s", input.(logInput).record, strings.Count(content, "\n"), tail)
	},
}
