package server_test

import (
	"cmp"
	"flag"
	"os"
	"testing"

	_ "pgregory.net/rapid" // its flags

	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
)

var etcd *etcdtest.Etcd

func TestMain(m *testing.M) { etcdtest.Main(m, &etcd) }

// The same histories are tried each time, unless REEVE_TEST_SEED or -rapid.seed says otherwise.
// Every step of them is some calls of a real store, so they are few, unless -rapid.checks says otherwise.
func init() {
	_ = flag.Set("rapid.seed", cmp.Or(os.Getenv("REEVE_TEST_SEED"), "1"))
	_ = flag.Set("rapid.checks", "20")
}
