package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Leases are short, so that an hour has many losses of one.
const settings = "lease = \"1s\"\nsegment_bytes = 8388608\nchunk_bytes = 65536\n" +
	// A client that is connected to any server keeps its session, whichever server leads.
	"session_timeout = \"15s\"\n"

var (
	servers = flag.Int("servers", 3, "of the cluster that -frieze starts")
	copies  = flag.Int("copies", 3, "of everything; with fewer than servers, none has all")
)

// Servers of one cluster, and a mount of each. Every peer reaches a server through a gate in front of it, which can cut or
// delay the connection between any two.
type cluster struct {
	frieze, directory string
	ways              *ways
	servers           []*server
	mounts            []string
}

type server struct {
	number  int
	command *exec.Cmd
	port    int
	gate    *gate
}

func build(frieze, directory string) *cluster {
	if *servers < writers {
		fmt.Fprintf(os.Stderr, "lab: -servers %d: at least %d\n", *servers, writers)
		os.Exit(2)
	}
	c := &cluster{frieze: frieze, directory: directory, ways: newWays()}
	all := fmt.Sprintf("%sreplicas = %d\nchain_count = %d\n", settings, *copies, 2**servers)
	must(os.WriteFile(filepath.Join(directory, "settings.toml"), []byte(all), 0o644))
	for i := range *servers {
		gate := newGate(c.ways, i)
		c.servers = append(c.servers, &server{number: i, port: freePort(), gate: gate})
		c.start(i)
	}
	if *copies < *servers {
		c.run("--quiet", "--server", c.servers[0].gate.address(), "cluster", "balance", "on")
	}
	c.awaitWhole()
	for i := range *servers {
		mount := filepath.Join(directory, fmt.Sprintf("mount%d", i))
		must(os.Mkdir(mount, 0o755))
		log := filepath.Join(directory, fmt.Sprintf("mount%d.log", i))
		c.run("--quiet", "--server", c.servers[i].gate.address(), "mount", "--log", log, mount)
		c.mounts = append(c.mounts, mount)
	}
	return c
}

// Starts a server, or starts it again on what its directory holds.
func (c *cluster) start(i int) {
	s := c.servers[i]
	arguments := []string{"serve", "--dir", filepath.Join(c.directory, strconv.Itoa(i)), "--name", fmt.Sprintf("db%d", i+1),
		"--listen", fmt.Sprintf("127.0.0.1:%d", s.port), "--advertise", s.gate.address(), "--memory", "256",
		"--config", filepath.Join(c.directory, "settings.toml")}
	if i > 0 {
		arguments = append(arguments, "--join", c.servers[0].gate.address())
	}
	s.command = exec.Command(c.frieze, arguments...)
	log, err := os.OpenFile(filepath.Join(c.directory, fmt.Sprintf("%d.log", i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(err)
	defer log.Close()
	s.command.Stderr = log
	out, err := s.command.StdoutPipe()
	must(err)
	must(s.command.Start())
	c.ways.is(i, s.command.Process.Pid)
	line, _ := bufio.NewReader(out).ReadString('\n')
	if !strings.HasPrefix(line, "ready ") {
		c.fail(fmt.Sprintf("server %d does not start: %q", i, line))
	}
	s.gate.to(s.port)
}

func (c *cluster) kill(i int) {
	s := c.servers[i]
	must(s.command.Process.Kill())
	// That it was killed is no news.
	_ = s.command.Wait()
	c.ways.is(i, 0)
}

func (c *cluster) signal(i int, signal syscall.Signal) {
	must(c.servers[i].command.Process.Signal(signal))
}

// Every server is up, and every chain has all its copies.
func (c *cluster) awaitWhole() {
	var last string
	for until := time.Now().Add(90 * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		for i := range *servers {
			// Exits with 1 while it names a trouble.
			out, _ := exec.Command(c.frieze, "--json", "--server", c.servers[i].gate.address(), "cluster", "status").Output()
			var status struct {
				Nodes  []struct{ State string }
				Chains []struct{ Targets []struct{ State string } }
			}
			last = string(out)
			if json.Unmarshal(out, &status) != nil || len(status.Chains) == 0 {
				continue
			}
			whole := len(status.Nodes) == *servers
			for _, node := range status.Nodes {
				whole = whole && node.State == "up"
			}
			for _, chain := range status.Chains {
				serving := 0
				for _, target := range chain.Targets {
					if target.State == "serving" {
						serving++
					}
				}
				whole = whole && serving == min(*copies, *servers) && serving == len(chain.Targets)
			}
			if whole {
				return
			}
		}
	}
	c.fail("the cluster does not become whole again: " + last)
}

func (c *cluster) run(arguments ...string) []byte {
	out, err := exec.Command(c.frieze, arguments...).Output()
	if err != nil {
		words := ""
		if exit, ok := err.(*exec.ExitError); ok {
			words = string(exit.Stderr)
		}
		c.fail(fmt.Sprintf("frieze %s: %v: %s", strings.Join(arguments, " "), err, words))
	}
	return out
}

var ending sync.Mutex

// What the servers and mounts said stays where it is.
func (c *cluster) fail(words string) {
	ending.Lock()
	fmt.Fprintln(os.Stderr, "lab: "+words+"\nlab: logs and data are in "+c.directory)
	c.stop()
	os.Exit(1)
}

func (c *cluster) stop() {
	for _, mount := range c.mounts {
		_ = exec.Command(c.frieze, "umount", "--lazy", mount).Run()
	}
	for _, s := range c.servers {
		if s != nil && s.command != nil && s.command.Process != nil {
			_ = s.command.Process.Signal(syscall.SIGCONT)
			_ = s.command.Process.Signal(syscall.SIGTERM)
		}
	}
	for _, s := range c.servers {
		if s != nil && s.command != nil {
			_ = s.command.Wait()
		}
	}
}
