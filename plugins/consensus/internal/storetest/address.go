package storetest

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// Host is a loopback address of this process's own, so that nobody else listens at its ports: an address that is free stays free until it is taken, and while its
// member is stopped.
func Host() string {
	id := os.Getpid() // up to 22 bits
	return fmt.Sprintf("127.%d.%d.%d", 64|id>>16&63, id>>8&255, id&255)
}

// given are the addresses that Free has returned.
var given sync.Map

// Free is an address of Host at which nobody listens, and which no other test of this process is given: it may not listen there yet, or not at the moment.
func Free(t testing.TB) string {
	t.Helper()
	for {
		listener, err := net.Listen("tcp", net.JoinHostPort(Host(), "0"))
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		listener.Close()
		if _, twice := given.LoadOrStore(address, true); !twice {
			return address
		}
	}
}
