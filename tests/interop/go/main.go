// The peer from the Go module proxy: `peer NAME URL...`. The commands are described in ../peers.py.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	redigolib "github.com/gomodule/redigo/redis"
)

type command struct {
	Acquire string
	Extend  string
	Release string
	TTL     int64
}

func main() {
	var pools []redis.Pool
	for _, url := range os.Args[2:] {
		dial := func() (redigolib.Conn, error) { return redigolib.DialURL(url) }
		pools = append(pools, redigo.NewPool(&redigolib.Pool{Dial: dial, MaxIdle: 1}))
	}
	locks := redsync.New(pools...)
	held := map[string]*redsync.Mutex{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked command
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		if asked.Release != "" {
			// What it says of a lock that was lost is not asked for.
			_, _ = held[asked.Release].Unlock()
			fmt.Println("{}")
			continue
		}
		expiry := redsync.WithExpiry(time.Duration(asked.TTL) * time.Millisecond)
		if asked.Extend != "" {
			// A mutex has but one expiry.
			mutex := held[asked.Extend]
			expiry.Apply(mutex)
			extended, _ := mutex.Extend()
			fmt.Printf("{\"held\": %t}\n", extended)
			continue
		}
		mutex := locks.NewMutex(asked.Acquire, expiry)
		err := mutex.TryLock()
		if err == nil {
			held[asked.Acquire] = mutex
		}
		fmt.Printf("{\"held\": %t}\n", err == nil)
	}
}
