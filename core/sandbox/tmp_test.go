package sandbox_test
import ("testing";"time";"github.com/reeveproject/reeve/core/sandbox";"github.com/reeveproject/reeve/proto/remit";"slices")
func TestTmpBench(t *testing.T){
 w,host:=newWorld(t),probed(t); file:=opened(t,executable(t))
 run:=func(name string,h *sandbox.Host,p sandbox.Policy){
  var ds,ws []time.Duration
  for range 60 { a:=time.Now(); c,err:=h.Start(p,sandbox.Command{Executable:file,Name:"x"}); if err!=nil{t.Fatal(err)}; ds=append(ds,time.Since(a)); a=time.Now(); c.Process.Wait(); ws=append(ws,time.Since(a)); c.PIDFD.Close(); c.Release()}
  slices.Sort(ds);slices.Sort(ws); t.Log(name,"start p50",ds[30],"min",ds[0],"wait p50",ws[30],"min",ws[0])
 }
 pv:=w.policy; pv.Remit=remit.Remit{Privileged:true}
 run("privileged",host,pv); run("all",host,w.policy)
 run("-mounts",host.Without("mounts"),w.policy)
 run("-ipc",host.Without("ipc"),w.policy)
 run("-mounts-ipc",host.Without("mounts","ipc"),w.policy)
 run("-landlock",host.Without("landlock-files"),w.policy)
 run("-seccomp",host.Without("seccomp"),w.policy)
 run("-cap",host.Without("capabilities"),w.policy)
 run("-all",host.Without("mounts","ipc","capabilities","seccomp","landlock-files","limits"),w.policy)
}
