package nodeapi_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

// visitor, as the first argument, makes the test binary a visitor of a socket: it connects and says what became of it. It is run under
// another user ID.
const visitor = "visit-socket"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == visitor {
		visit(os.Args[2])
		return
	}
	nodeapi.AwaitLateClients()
	leaktest.VerifyTestMain(m)
}

// visit prints "refused" if the socket cannot be connected to, "closed" if the server closes the connection before it has said a word, and
// "served" if the server speaks.
func visit(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Println("refused")
		return
	}
	defer conn.Close()
	// The preface of HTTP/2 with an empty SETTINGS frame, which the server answers.
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		fmt.Println("closed")
		return
	}
	if n, _ := conn.Read(make([]byte, 1)); n == 0 {
		fmt.Println("closed")
		return
	}
	fmt.Println("served")
}
