// The driver of go-redis: `driver SOCKET`. ../../clients.py describes the protocol.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

func main() {
	client := redis.NewClient(&redis.Options{
		Network:     "unix",
		Addr:        os.Args[1],
		ReadTimeout: -1, // LOCK waits.
		MaxRetries:  -1,
	})
	connection := client.Conn()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var words []any
		for word := range strings.SplitSeq(lines.Text(), "\t") {
			words = append(words, word)
		}
		reply, err := connection.Do(context.Background(), words...).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			reply = map[string]string{"error": err.Error()}
		}
		written, err := json.Marshal(reply)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(written))
	}
}
