package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
)

// Cycles of the contender quorlock-serve: go-redis as a client of `quorlock serve`, whose socket QUORLOCK_SOCKET names.
// Each key has a connection of its own, as a lease needs.
func serveCycles() func(number int) cycle {
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: os.Getenv("QUORLOCK_SOCKET"), PoolSize: 1024, MaxRetries: -1,
	})
	connections := map[int]*redis.Conn{}
	return func(number int) cycle {
		connection, found := connections[number]
		if !found {
			connection = client.Conn()
			connections[number] = connection
		}
		ctx, key := context.Background(), fmt.Sprintf("quorlock-serve-%d", number)
		return func() error {
			lease, err := connection.Do(ctx, "LOCK", key).Slice()
			if err != nil {
				return err
			}
			if released, err := connection.Do(ctx, "UNLOCK", lease[0]).Int(); released != 1 {
				return fmt.Errorf("not released by a majority: %w", err)
			}
			return nil
		}
	}
}
