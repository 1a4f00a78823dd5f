// Runs redsync: `peer NAME URL...`. The commands are described in ../peers.py.
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
		var request command
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			panic(err)
		}
		if request.Release != "" {
			// Errors for a lost lock are ignored: the caller does not need them.
			_, _ = held[request.Release].Unlock()
			fmt.Println("{}")
			continue
		}
		expiry := redsync.WithExpiry(time.Duration(request.TTL) * time.Millisecond)
		if request.Extend != "" {
			// Extend has no parameter for the expiry, so set it in the mutex.
			mutex := held[request.Extend]
			expiry.Apply(mutex)
			extended, _ := mutex.Extend()
			fmt.Printf("{\"held\": %t}\n", extended)
			continue
		}
		mutex := locks.NewMutex(request.Acquire, expiry)
		err := mutex.TryLock()
		if err == nil {
			held[request.Acquire] = mutex
		}
		fmt.Printf("{\"held\": %t}\n", err == nil)
	}
}
