package output_test

import (
	"github.com/reeveproject/reeve/cli/output"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

func sampleImageLoad() output.ImageLoad {
	return output.ImageLoad{File: "app.tar", Nodes: []output.ImageLoadNode{
		{NodeID: sampleNode, Result: output.ImagesLoaded, Images: []string{"docker.io/library/app:1", "docker.io/library/side\x1b[2Jcar:1"}, Bytes: 12 << 20},
		{NodeID: otherNode, Result: output.ImagesFailed, Images: []string{}, Bytes: 4096, Reason: "the archive is damaged: unexpected EOF"},
		{NodeID: "reeve-99", Result: output.ImagesSkipped, Images: []string{}, Reason: "the role is Blocked: there is no program nft"},
	}}
}

func sampleKubernetesCheck() output.KubernetesCheck {
	return output.KubernetesCheck{Nodes: []output.KubernetesCheckNode{
		{NodeID: sampleNode, HasRole: true, State: "Blocked", Known: true, Reason: "there is no program nft", Missing: []*kubernetesv1.Missing{
			{What: "the program nft", Remedy: "Install nftables.\x1b"}, {What: "the controller memory of cgroups"},
		}},
		{NodeID: otherNode, HasRole: true, State: "Ready", Known: true, Missing: []*kubernetesv1.Missing{}},
		{NodeID: "reeve-98", HasRole: true, Missing: []*kubernetesv1.Missing{}, Reason: "its heartbeat is not fresh"},
		{NodeID: "reeve-99", Missing: []*kubernetesv1.Missing{}, Reason: "it does not have the role"},
	}}
}
