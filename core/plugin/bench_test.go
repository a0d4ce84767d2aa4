package plugin_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/proto/remit"
)

// From Prepare to the first RPC that a role answers, verified and in its sandbox, and the same for one that is privileged and so has none, by turns; and
// from the end of its process to Done.
func BenchmarkLaunch(b *testing.B) {
	node := newNode(b)
	digest := node.add(b, everything)
	starts, ends := make(map[string][]time.Duration), make(map[string][]time.Duration)
	for b.Loop() {
		for _, tier := range []string{"confined", remit.Privileged} {
			s := spec(digest, everything, plugintest.Configuration{Do: "ready"})
			if tier == remit.Privileged {
				s.Plugin.Grants[0].Grants = granted(remit.Privileged)
			}
			began := time.Now()
			r, err := node.launcher.Prepare(b.Context(), s)
			if err != nil {
				b.Fatal(err)
			}
			instance, err := node.launcher.Launch(b.Context(), r, s, "/nowhere")
			if err != nil {
				b.Fatal(err)
			}
			starts[tier] = append(starts[tier], time.Since(began))
			if err := syscall.Kill(instance.Process().PID, syscall.SIGKILL); err != nil {
				b.Fatal(err)
			}
			killed := time.Now()
			<-instance.Done()
			ends[tier] = append(ends[tier], time.Since(killed))
		}
	}
	median := func(measured []time.Duration) float64 {
		slices.Sort(measured)
		return float64(measured[len(measured)/2]) / float64(time.Millisecond)
	}
	for tier := range starts {
		b.ReportMetric(median(starts[tier]), tier+"-ms-to-first-rpc")
		b.ReportMetric(median(ends[tier]), tier+"-ms-to-done")
	}
	b.ReportMetric(median(starts["confined"])/median(starts[remit.Privileged]), "ratio")
}
