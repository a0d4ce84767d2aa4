package sandbox_test

import (
	"testing"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/proto/remit"
)

// BenchmarkStart is the start of a process up to where it would run, in a sandbox and without one.
func BenchmarkStart(b *testing.B) {
	for name, r := range inorder.Of(map[string]remit.Remit{"confined": {}, "privileged": {Privileged: true}}) {
		b.Run(name, func(b *testing.B) {
			w, host := newWorld(b), probed(b)
			w.policy.Remit = r
			file := opened(b, executable(b))
			for b.Loop() {
				child, err := host.Start(w.policy, sandbox.Command{Executable: file, Name: "attempt"})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer() // what it does then, and how it ends, is not measured
				if _, err := child.Process.Wait(); err != nil {
					b.Fatal(err)
				}
				_ = child.PIDFD.Close()
				child.Release()
				b.StartTimer()
			}
		})
	}
}
