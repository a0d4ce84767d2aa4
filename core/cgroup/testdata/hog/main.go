// Command hog uses too much of what it is told to.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"time"
)

func main() {
	var one [1]byte
	if _, err := os.Stdin.Read(one[:]); err != nil { // until it is in its group
		os.Exit(3)
	}
	switch os.Args[1] {
	case "memory":
		var kept [][]byte
		for {
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = 1
			}
			kept = append(kept, block)
			if len(kept) > 512 {
				fmt.Println("512 MiB")
				return
			}
		}
	case "processes":
		var started int
		for range 200 {
			if exec.Command("sleep", "600").Start() != nil {
				break
			}
			started++
		}
		fmt.Println(started)
		time.Sleep(10 * time.Minute)
	default:
		time.Sleep(10 * time.Minute)
	}
}
