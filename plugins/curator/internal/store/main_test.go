package store_test

import (
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
)

var etcd *etcdtest.Etcd

func TestMain(m *testing.M) { etcdtest.Main(m, &etcd) }
