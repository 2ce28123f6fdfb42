package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Linux reports CPU times of processes in steps of 10 ms.
const ticksPerSecond = 100

// outcome is the result of a measure: the work that was done, its time, and the CPU time by process.
type outcome struct {
	Operations int64   `json:"operations"`
	Bytes      int64   `json:"bytes"`
	Records    int64   `json:"records"`
	Retries    int64   `json:"retries"`
	WallS      float64 `json:"wall_s"`
	BrokerCPUS float64 `json:"broker_cpu_s"`
	ClientCPUS float64 `json:"client_cpu_s"`
	OtherCPU   float64 `json:"other_cpu"`
	P50Ms      float64 `json:"p50_ms"`
	P99Ms      float64 `json:"p99_ms"`
	MemoryMiB  float64 `json:"memory_mib"`
}

type snapshot struct {
	at                      time.Time
	broker, client, machine float64
}

func look(pid int) snapshot {
	return snapshot{time.Now(), processCPU(pid), ownCPU(), machineCPU()}
}

// since returns the outcome with the CPU time used since the first reading.
func (before snapshot) since(pid int) outcome {
	now := look(pid)
	wall := now.at.Sub(before.at).Seconds()
	broker, client := now.broker-before.broker, now.client-before.client
	others := max(now.machine-before.machine-broker-client, 0) / wall
	return outcome{
		WallS: wall, BrokerCPUS: broker, ClientCPUS: client, OtherCPU: others, MemoryMiB: residentMiB(pid),
	}
}

func processCPU(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the program's name in parentheses. The name may contain any character.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return number(string(fields[11])) + number(string(fields[12]))
}

func machineCPU() float64 {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(line)[1:]
	sum := 0.0
	for _, each := range []int{0, 1, 2, 5, 6, 7} { // user, nice, system, irq, softirq, steal
		sum += number(fields[each])
	}
	return sum
}

func number(ticks string) float64 {
	value, _ := strconv.ParseFloat(ticks, 64)
	return value / ticksPerSecond
}

func ownCPU() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

func residentMiB(pid int) float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, found := strings.Cut(string(status), "VmRSS:")
	if !found {
		return 0
	}
	kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kib / 1024
}

const (
	warming int32 = iota
	measuring
	ended
)

// operation does one operation and returns the number of bytes that it moved.
type operation func() (int64, error)

// rate repeats the operations, each in its own goroutine, first as a warm-up and then measured.
// The measurement ends early once a given number of bytes is moved.
func rate(o options, operations []operation) (outcome, error) {
	var phase atomic.Int32
	var moved atomic.Int64
	counts := make([]int64, len(operations))
	latencies := make([][]time.Duration, len(operations))
	failures := make(chan error, len(operations))
	enough, begun := make(chan struct{}), make(chan struct{})
	var once, first sync.Once
	var working sync.WaitGroup
	for index, work := range operations {
		latencies[index] = make([]time.Duration, 0, 1<<16)
		working.Go(func() {
			for phase.Load() != ended {
				start := time.Now()
				size, err := work()
				if err != nil {
					failures <- err
					once.Do(func() { close(enough) })
					return
				}
				if phase.Load() == measuring {
					counts[index]++
					first.Do(func() { close(begun) })
					latencies[index] = append(latencies[index], time.Since(start))
					if total := moved.Add(size); o.bytes > 0 && total >= o.bytes {
						once.Do(func() { close(enough) })
					}
				}
			}
		})
	}
	wait(o.warm, enough)
	before := look(o.pid)
	phase.Store(measuring)
	wait(o.measured, enough)
	// If the machine is too busy for a single operation in that time, wait for one.
	select {
	case <-begun:
	case <-enough:
	}
	phase.Store(ended)
	result := before.since(o.pid)
	working.Wait()
	select {
	case err := <-failures:
		return outcome{}, err
	default:
	}
	for _, count := range counts {
		result.Operations += count
	}
	result.Bytes = moved.Load()
	result.quantiles(slices.Concat(latencies...))
	return result, nil
}

func wait(long time.Duration, enough <-chan struct{}) {
	select {
	case <-time.After(long):
	case <-enough:
	}
}

func (result *outcome) quantiles(latencies []time.Duration) {
	if len(latencies) == 0 {
		return
	}
	slices.Sort(latencies)
	ms := func(share int) float64 { return latencies[len(latencies)*share/100].Seconds() * 1000 }
	result.P50Ms, result.P99Ms = ms(50), ms(99)
}
