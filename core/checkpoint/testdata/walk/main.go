// Command walk takes the steps that its arguments name, and says so of each when it is past it.
package main

import (
	"fmt"
	"os"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/storage"
)

func main() {
	for _, step := range os.Args[2:] {
		checkpoint.At(checkpoint.Step(step))
		fmt.Println("past", step)
	}
	if os.Args[1] != "" {
		if err := storage.WriteFile(os.Args[1], []byte("new"), 0o600); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}
