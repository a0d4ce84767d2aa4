// Command attempt tries what it is told to in its environment, and prints what came of it, as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	results := make(map[string]string)
	for _, name := range strings.Split(os.Getenv("ATTEMPTS"), "\n") {
		if name == "" {
			continue
		}
		kind, argument, _ := strings.Cut(name, " ")
		do, ok := attempts[kind]
		if !ok {
			results[name] = "unknown attempt"
			continue
		}
		value, err := do(argument)
		switch {
		case err != nil:
			results[name] = "error: " + err.Error()
		default:
			results[name] = value
		}
	}
	encoded, err := json.Marshal(results)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(encoded))
	if os.Getenv("WAIT") != "" {
		time.Sleep(time.Hour)
	}
}
