from tests.engine.nodes.nodes_world import *
import airflow_cdc_provider
def test_it():
    print(airflow_cdc_provider.__file__)
    world = World(Start())
    world.write(0, [Write("put", 0, 10, 5)])
    world.write(1, [Write("put", 0, 10, 6), Write("put", 1, 0, 6)])
    world.edges[0].deliver()
    world.write(1, [Write("put", 0, 11, 6), Write("move", 1, 11, 6)])
    world.write(0, [Write("delete", 0, 11, 6), Write("again", 1, 11, 6)])
    world.finish()
    print(world.nodes[0].rows)
    for e in world.edges: print(e.ledger.conflicts)
