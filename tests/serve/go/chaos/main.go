// The Go client of the chaos run, which locks through `quorlock serve`. ../../../chaos/client.py describes what it
// does, and the history. It neither elects leaders nor changes modes. Each loop has its own connection.
//
// When a connection ends while the client holds a lease, it records `disconnected`, and then ignores the lease.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

const step = 20 // milliseconds between two checks of a lease

const backoff = 20 * time.Millisecond // before another connection

const disconnected = "DISCONNECTED"

// The codes of errors, as the clients in other languages record them.
var codes = map[string]string{
	"TIMEOUT": "TIMEOUT", "NOQUORUM": "NO_QUORUM", "LEASELOST": "LEASE_LOST", "CLOSED": "CLOSED",
}

var (
	settings struct {
		Name, Socket, Register, History, Pool          string
		Resources                                      []string
		Loops, Limit                                   int
		PermitLoops                                    int `json:"permit_loops"`
		Permits, Thinks, Pauses, Cancels, Withins      []int
		Waits                                          []*int
		Pairs, Cancelled, Sharing, Detaching, Adopting float64
	}
	client  *redis.Client
	history *os.File
	over    atomic.Bool
	asks    atomic.Int64
)

type entry map[string]any

func main() {
	must(json.Unmarshal([]byte(os.Args[1]), &settings))
	var err error
	history, err = os.OpenFile(settings.History, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	must(err)
	client = redis.NewClient(&redis.Options{
		Network: "unix", Addr: settings.Socket, ReadTimeout: -1, MaxRetries: -1, ContextTimeoutEnabled: true,
	})
	var loops sync.WaitGroup
	for number := range settings.Loops + settings.PermitLoops {
		loops.Go(func() { run(number < settings.Loops) })
	}
	end := make([]byte, 1)
	_, _ = os.Stdin.Read(end)
	over.Store(true)
	loops.Wait()
	must(client.Close())
	record("closed", entry{"at": now()})
	_, _ = io.ReadAll(os.Stdin)
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func now() int64 {
	var time unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &time))
	return time.Nano()
}

func choose[T any](from []T) T { return from[rand.IntN(len(from))] }

// Appends an event with a single write, so a kill leaves no partial line.
func record(event string, entry entry) {
	entry["event"] = event
	line, err := json.Marshal(entry)
	must(err)
	_, err = history.Write(append(line, '\n'))
	must(err)
}

type loop struct {
	connection *redis.Conn
	register   net.Conn
	answers    *bufio.Reader
}

func run(locks bool) {
	register, err := net.Dial("unix", settings.Register)
	must(err)
	loop := &loop{client.Conn(), register, bufio.NewReader(register)}
	for !over.Load() {
		loop.turn(locks)
		time.Sleep(time.Duration(choose(settings.Pauses)) * time.Millisecond)
	}
	_ = loop.connection.Close()
}

// Sends a request to the daemon. Returns its reply, or the code of the error. Gives up after `limit`, unless it is 0.
func (loop *loop) ask(limit time.Duration, words ...any) (any, string) {
	ctx := context.Background()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	reply, err := loop.connection.Do(ctx, words...).Result()
	var refused redis.Error
	switch {
	case err == nil:
		return reply, ""
	case errors.As(err, &refused):
		first, _, _ := strings.Cut(err.Error(), " ")
		code, known := codes[first]
		if !known {
			log.Panic(err)
		}
		return nil, code
	default:
		_ = loop.connection.Close()
		loop.connection = client.Conn()
		time.Sleep(backoff)
		return nil, disconnected
	}
}

// Sends a request to the register, and returns its answer.
func (loop *loop) tell(request entry) (answer struct {
	OK        bool
	Value     int
	Text      string
	Giver     string
	Resources []string
	Shared    []string
}) {
	request["client"] = settings.Name
	line, err := json.Marshal(request)
	must(err)
	_, err = loop.register.Write(append(line, '\n'))
	must(err)
	line, err = loop.answers.ReadBytes('\n')
	must(err)
	must(json.Unmarshal(line, &answer))
	return answer
}

type lease struct {
	id, token string
	fence     int64
	resources []string
	shared    []string // the resources in shared mode
	isOver    bool     // the connection has ended
}

// Checks the lease, and records how long it is still valid.
func (loop *loop) look(event string, lease *lease, entry entry) {
	if lease.isOver {
		return
	}
	at, left := now(), int64(0)
	reply, code := loop.ask(0, "CHECK", lease.id)
	if code == "" {
		left = reply.(int64) * 1_000_000
	}
	entry["token"], entry["at"], entry["left"] = lease.token, at, left
	record(event, entry)
	if code == disconnected {
		loop.end(lease)
	}
}

func (loop *loop) end(lease *lease) {
	lease.isOver = true
	record("disconnected", entry{"token": lease.token, "at": now()})
}

// Acquires a lock or permits, holds them for a while, and releases or detaches them.
func (loop *loop) turn(locks bool) {
	lease := loop.acquire(locks)
	if lease == nil {
		return
	}
	if locks {
		loop.write(lease)
		if rand.Float64() < settings.Detaching && loop.detach(lease) {
			return
		}
	} else {
		loop.think(lease)
	}
	if lease.isOver {
		return
	}
	record("release", entry{"token": lease.token, "at": now()})
	if reply, code := loop.ask(0, "UNLOCK", lease.id); code == "" {
		record("released", entry{"token": lease.token, "at": now(), "ok": reply.(int64) == 1})
	}
}

func (loop *loop) acquire(locks bool) *lease {
	words, permits := []any{"LOCK", "RESOURCES"}, 0
	resources, shared, giver := []string{settings.Pool}, []string{}, ""
	if locks {
		many := 1
		if rand.Float64() < settings.Pairs {
			many = 2
		}
		resources = nil
		for _, number := range rand.Perm(len(settings.Resources))[:many] {
			resources = append(resources, settings.Resources[number])
		}
		if rand.Float64() < settings.Sharing {
			shared = resources
		}
		if rand.Float64() < settings.Adopting {
			if offer := loop.tell(entry{"op": "take"}); offer.OK {
				words, giver = []any{"ADOPT", offer.Text}, offer.Giver
				resources, shared = offer.Resources, offer.Shared
			}
		}
	}
	if giver == "" {
		words = append(words, len(resources))
		for _, resource := range resources {
			words = append(words, resource)
		}
		if len(shared) > 0 {
			words = append(words, "MODE", "shared")
		}
		if !locks {
			permits = choose(settings.Permits)
			words = append(words, "LIMIT", settings.Limit, "PERMITS", permits)
		}
	}
	wait := choose(settings.Waits)
	if wait == nil {
		words = append(words, "WAIT", "FOREVER")
	} else {
		words = append(words, "WAIT", *wait)
	}
	ask, asked, limit := asks.Add(1), now(), time.Duration(0)
	if rand.Float64() < settings.Cancelled {
		limit = time.Duration(1+choose(settings.Cancels)) * time.Millisecond
	}
	about := func(more entry) entry {
		more["ask"], more["asked"], more["giver"], more["owner"] = ask, asked, nil, "daemon"
		if giver != "" {
			more["giver"] = giver
		}
		return more
	}
	record("ask", about(entry{"resources": resources, "wait": wait, "at": asked}))
	reply, code := loop.ask(limit, words...)
	if code == disconnected && limit > 0 && now() >= asked+limit.Nanoseconds() {
		record("cancel", about(entry{"at": asked + limit.Nanoseconds()}))
		record("cancelled", about(entry{"at": now()}))
		return nil
	}
	if code != "" {
		record("error", about(entry{"at": now(), "code": code}))
		return nil
	}
	items := reply.([]any)
	found := &lease{
		id: items[0].(string), token: fmt.Sprintf("%016x", rand.Uint64()), fence: items[1].(int64),
		shared: shared,
	}
	if permits > 0 {
		resources = nil
		for _, slot := range items[3].([]any) {
			resources = append(resources, fmt.Sprintf("%s %d", settings.Pool, slot))
		}
	}
	found.resources = resources
	fences := map[string]int64{}
	for _, resource := range resources {
		fences[resource] = found.fence
	}
	granted := about(entry{"resources": resources, "fences": fences, "shared": shared, "extended": true})
	if permits > 0 {
		granted["permits"] = permits
	}
	loop.look("granted", found, granted)
	return found
}

// Reads the register, pauses, and writes the values plus one, except those of resources in shared mode.
func (loop *loop) write(lease *lease) {
	values := map[string]int{}
	send := func(op, resource string, value int) {
		mode := "exclusive"
		if slices.Contains(lease.shared, resource) {
			mode = "shared"
		}
		answer := loop.tell(entry{
			"op": op, "resource": resource, "fence": lease.fence, "mode": mode, "value": value,
		})
		if answer.OK {
			values[resource] = answer.Value
		} else {
			loop.look("refused", lease, entry{"resource": resource})
		}
	}
	for _, resource := range lease.resources {
		send("read", resource, 0)
	}
	if len(values) == len(lease.resources) {
		loop.think(lease)
	}
	for resource, value := range values {
		if !slices.Contains(lease.shared, resource) {
			send("write", resource, value+1)
		}
	}
}

// Pauses, and checks the lease now and then.
func (loop *loop) think(lease *lease) {
	for left := choose(settings.Thinks); left > 0; left -= step {
		time.Sleep(time.Duration(min(left, step)) * time.Millisecond)
		loop.look("look", lease, entry{})
	}
}

// Leaves the lease at the register for another client. Returns whether it did, or the connection has ended.
func (loop *loop) detach(lease *lease) bool {
	if lease.isOver {
		return true
	}
	within := choose(settings.Withins)
	record("detach", entry{"token": lease.token, "at": now(), "within": within})
	text, code := loop.ask(0, "DETACH", lease.id, "WITHIN", within)
	if code == disconnected {
		loop.end(lease)
		return true
	}
	record("detached", entry{"token": lease.token, "at": now(), "ok": code == ""})
	if code == "" {
		loop.tell(entry{
			"op": "offer", "text": text, "giver": lease.token, "resources": lease.resources, "shared": lease.shared,
		})
	}
	return code == ""
}
