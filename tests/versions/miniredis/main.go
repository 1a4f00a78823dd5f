// Runs servers of miniredis until the end of stdin: `miniredis COUNT`. Prints one URL per line.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	for range count {
		server := miniredis.NewMiniRedis()
		// Without this, keys expire only when the program says so.
		server.ClockTTL(true)
		if err := server.Start(); err != nil {
			panic(err)
		}
		fmt.Println("redis://" + server.Addr())
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
