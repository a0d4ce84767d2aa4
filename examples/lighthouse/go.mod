module github.com/reeveproject/reeve/examples/lighthouse

go 1.26.0

replace github.com/reeveproject/reeve/proto => ../../proto

replace github.com/reeveproject/reeve/sdk => ../../sdk

replace github.com/reeveproject/reeve/sdk/consensus => ../../sdk/consensus

require (
	github.com/reeveproject/reeve/proto v0.0.0
	github.com/reeveproject/reeve/sdk v0.0.0
	github.com/reeveproject/reeve/sdk/consensus v0.0.0
)
