// The contenders in Go, redsync and a client of quorlock: `peer NAME URL...`. ../README.md describes the protocol.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

const ttl = 10 * time.Second

// Options of redsync that differ from its defaults, by the name of the contender.
var options = map[string][]redsync.Option{
	"redsync":           {redsync.WithExpiry(ttl)},
	"redsync-fail-fast": {redsync.WithExpiry(ttl), redsync.WithFailFast(true)},
}

type request struct {
	Cycles      int
	Concurrency int
}

type answer struct {
	Micros  []float64 `json:"micros"`
	Seconds float64   `json:"seconds"`
	CPU     float64   `json:"cpu"`
}

type failure struct {
	Error string `json:"error"`
}

// An acquire and a release.
type cycle func() error

func main() {
	name := os.Args[1]
	cycles := serveCycles()
	if name != "quorlock-serve" {
		cycles = redsyncCycles(name)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		written, err := json.Marshal(serve(cycles, asked))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(written))
	}
}

// Returns a function that returns the cycle of a key.
func redsyncCycles(name string) func(number int) cycle {
	var pools []redis.Pool
	for _, url := range os.Args[2:] {
		parsed, err := goredislib.ParseURL(url)
		if err != nil {
			panic(err)
		}
		pools = append(pools, goredis.NewPool(goredislib.NewClient(parsed)))
	}
	locks := redsync.New(pools...)
	return func(number int) cycle {
		mutex := locks.NewMutex(fmt.Sprintf("%s-%d", name, number), options[name]...)
		return func() error {
			if err := mutex.Lock(); err != nil {
				return err
			}
			// If released is true, an error concerns only a minority of the nodes.
			if released, err := mutex.Unlock(); !released {
				return fmt.Errorf("not released by a majority: %w", err)
			}
			return nil
		}
	}
}

// Runs the cycles of each key in a goroutine.
func serve(cycles func(number int) cycle, asked request) any {
	times := make([][]float64, asked.Concurrency)
	errs := make([]error, asked.Concurrency)
	cpu, began := cpuSeconds(), time.Now()
	var loops sync.WaitGroup
	for number := range asked.Concurrency {
		run := cycles(number)
		loops.Go(func() { times[number], errs[number] = loop(run, asked.Cycles) })
	}
	loops.Wait()
	seconds, used := time.Since(began).Seconds(), cpuSeconds()-cpu
	if err := errors.Join(errs...); err != nil {
		return failure{err.Error()}
	}
	return answer{slices.Concat(times...), seconds, used}
}

func loop(run cycle, cycles int) ([]float64, error) {
	micros := make([]float64, 0, cycles)
	for range cycles {
		start := time.Now()
		if err := run(); err != nil {
			return nil, err
		}
		micros = append(micros, float64(time.Since(start).Nanoseconds())/1e3)
	}
	return micros, nil
}

// Returns the CPU time of all threads of this process.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
