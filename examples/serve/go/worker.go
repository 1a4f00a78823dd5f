// Waits for the payment of an order, and records it. One worker at a time handles an order, whatever its language.
//
//	QUORLOCK_SOCKET=/run/quorlock/quorlock.sock SHOP_URL=redis://127.0.0.1:6379 go run . 42
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, order := context.Background(), os.Args[1]
	shopOptions, err := redis.ParseURL(os.Getenv("SHOP_URL"))
	if err != nil {
		log.Fatal(err)
	}
	shopOptions.ReadTimeout = -1 // BLPOP waits.
	shop := redis.NewClient(shopOptions)
	write, err := os.ReadFile("../write.lua")
	if err != nil {
		log.Fatal(err)
	}
	locks := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Getenv("QUORLOCK_SOCKET")})
	connection := locks.Conn() // a lease belongs to a connection
	defer connection.Close()

	lease, err := connection.Do(ctx, "LOCK", "orders:"+order, "WAIT", 1000).Slice()
	if redis.HasErrorPrefix(err, "TIMEOUT") {
		fmt.Printf("order %s is being handled\n", order)
		return
	} else if err != nil {
		log.Fatal(err)
	}
	id, fence := lease[0], lease[1]
	fmt.Printf("order %s locked, fence %d\n", order, fence)
	if err := shop.BLPop(ctx, 0, "payments:"+order).Err(); err != nil {
		log.Fatal(err) // the end of the connection releases the lease
	}
	if err := connection.Do(ctx, "CHECK", id).Err(); err != nil {
		log.Fatal(err)
	}
	if shop.Eval(ctx, string(write), []string{"order:" + order}, fence, "paid").Val() != int64(1) {
		log.Fatal("a later worker has written")
	}
	fmt.Printf("order %s paid\n", order)
	connection.Do(ctx, "UNLOCK", id)
}
