// Command walk takes the steps that its arguments name, in the directory that the first one names, and says of each when it is past it.
package main

import (
	"fmt"
	"os"

	"github.com/reeveproject/reeve/sdk/checkpoint"
)

func main() {
	checkpoint.Use(os.Args[1], []checkpoint.Step{"write", "promote"})
	for _, step := range os.Args[2:] {
		_ = checkpoint.Around(checkpoint.Step(step), func() error {
			fmt.Println("does", step)
			return nil
		})
		fmt.Println("past", step)
	}
}
