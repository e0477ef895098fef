package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usage is processor time in milliseconds, by part of the stack. Ratios of it say more
// than ratios of time when the machine has other work.
type usage struct {
	Node      float64 `json:"node"` // this process: server, worker, and the callers
	Temporald float64 `json:"temporald"`
	Postgres  float64 `json:"postgres"`
	Children  float64 `json:"children"` // demo upstream and evaluators
}

func (u usage) total() float64 { return u.Node + u.Temporald + u.Postgres + u.Children }

// each is what one of n operations used between two readings.
func (u usage) each(before usage, n int64) usage {
	d := float64(max(n, 1))
	return usage{(u.Node - before.Node) / d, (u.Temporald - before.Temporald) / d,
		(u.Postgres - before.Postgres) / d, (u.Children - before.Children) / d}
}

// processorTime reads what the parts have used so far, all 0 where the system does not
// tell. Postgres is its postmaster with its living and its ended children.
func (s *stack) processorTime() usage {
	var u usage
	self, temporald, postmaster := os.Getpid(), 0, 0
	for _, d := range s.stacks {
		temporald, postmaster = max(temporald, d.TemporaldPID()), max(postmaster, d.PostgresPID())
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		p, ok := readProcess(dir)
		if !ok {
			continue
		}
		switch {
		case p.id == self:
			u.Node += p.own
		case p.id == temporald:
			u.Temporald += p.own
		case p.id == postmaster:
			u.Postgres += p.own + p.ended
		case p.parent == postmaster:
			u.Postgres += p.own
		case p.parent == self:
			u.Children += p.own
		}
	}
	return u
}

// process is a line of Linux's /proc/<id>/stat.
type process struct {
	id, parent int
	own, ended float64 // ms of processor time: its own, and of its children that have ended
}

// tick is the unit of times in /proc, the same on all of Linux's architectures that Go has.
const tick = 10 // ms

func readProcess(dir string) (process, bool) {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, false
	}
	return parseProcess(filepath.Base(dir), string(text))
}

func parseProcess(id, stat string) (p process, ok bool) {
	end := strings.LastIndex(stat, ") ") // the name, in parentheses, may hold anything
	if end < 0 {
		return p, false
	}
	fields := strings.Fields(stat[end+2:])
	if len(fields) < 15 {
		return p, false
	}
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		ok = ok && err == nil
		return v
	}
	ok = true
	p.id, p.parent = int(number(id)), int(number(fields[1]))
	p.own = tick * (number(fields[11]) + number(fields[12]))
	p.ended = tick * (number(fields[13]) + number(fields[14]))
	return p, ok
}
