package server_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
)

var etcd *etcdtest.Etcd

func TestMain(m *testing.M) {
	code := etcdtest.Main(m, &etcd)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
