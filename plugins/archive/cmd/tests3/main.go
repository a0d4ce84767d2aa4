// Command tests3 is an S3 server for the tests of other modules, with one bucket. It writes where it is, the bucket, and the key and the secret that it takes, as a line of JSON. Then it answers each line of its
// standard input, the name of an object, with a line of JSON: what the object holds, in base64; null: there is none. It ends with its standard input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/reeveproject/reeve/plugins/archive/internal/s3test"
)

func main() {
	if err := run(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "tests3:", err)
		os.Exit(1)
	}
}

func run() error {
	server, err := s3test.New()
	if err != nil {
		return err
	}
	server.Start()
	defer server.Close()
	answer := json.NewEncoder(os.Stdout)
	if err := answer.Encode(map[string]string{"endpoint": server.URL, "bucket": s3test.Bucket, "key": s3test.Key, "secret": s3test.Secret}); err != nil {
		return err
	}
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		content, err := server.Read(asked.Text())
		if err != nil {
			return err
		}
		if err := answer.Encode(content); err != nil {
			return err
		}
	}
	return asked.Err()
}
